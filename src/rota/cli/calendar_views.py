"""Calendars as tables and pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rota.cli import times
from rota.cli.inert import inert
from rota.cli.printing import ListView
from rota.cli.table import Column, write_pairs
from rota.cli.terminal import Terminal
from rota.sdk.calendar_answers import Calendar, CalendarDetail, CalendarWindow


def _words(calendar: Calendar) -> str:
    return calendar.words or f"cannot be read, jobs do not fire: {calendar.problem}"


CALENDARS: ListView[Calendar] = ListView(
    columns=(
        Column("NAME", lambda calendar: calendar.name, is_whole=True),
        Column("CLOSED", _words),
        Column("VERSION", lambda calendar: str(calendar.version), only_wide=True),
        Column(
            "CHANGED",
            lambda calendar: times.moment(calendar.updated_at, times.now()),
            only_wide=True,
        ),
        Column("BY", lambda calendar: calendar.updated_by, only_wide=True),
    ),
    name=lambda calendar: calendar.name,
    empty="no calendars; define one with: rota calendar set FILE",
)


def write_calendar(
    terminal: Terminal,
    calendar: CalendarDetail,
    windows: Sequence[CalendarWindow],
    present: datetime,
) -> None:
    """A calendar on one page, its definition last."""
    write_pairs(
        terminal,
        [
            ("calendar", f"{calendar.name} (version {calendar.version})"),
            ("closed", _words(calendar)),
            ("used by", ", ".join(calendar.used_by) or "no job"),
            ("changed", times.moment(calendar.updated_at, present)),
            ("by", calendar.updated_by),
        ],
    )
    for window in windows:
        begins, ends = times.absolute(window.begins), times.absolute(window.ends)
        terminal.write(f"  from {begins} to {ends}")
    terminal.write()
    for line in calendar.yaml.rstrip("\n").split("\n"):
        terminal.write(inert(line))
