"""`rota calendar`: windows in which jobs do not run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from rota.api.calendars import Calendar, CalendarDetail, CalendarWindow
from rota.cli import times
from rota.cli.failures import FileRefused
from rota.cli.options import DESTROYING, REMOTE, WRITING, AtMost, Destroying, Remote, Writing
from rota.cli.printing import (
    Column,
    ListView,
    exit_of_change,
    print_list,
    print_one,
    write_change,
    write_pairs,
)
from rota.cli.references import ask, ask_list, complete_calendars
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.cli.texts import NamedText, read_text
from rota.sdk.client import Client
from rota.sdk.errors import Invalid


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
    """Print a calendar on one page, its definition last."""
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


app = App(name="calendar", help="Windows in which jobs do not run: list, show, set, delete.")

_SHOWN = 5

Name = Annotated[str, Parameter(help="Name of a calendar.", completer=complete_calendars)]


@app.command(name="list")
def list_(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List calendars."""
    with remote.connect() as client:
        listing = ask_list(client, Client.list_calendars(), limit=limit)
    print_list(remote, listing, CALENDARS)


@app.command
def show(calendar: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a calendar: its next windows, the jobs that use it, and its definition."""
    with remote.connect() as client:
        found = ask(client, Client.get_calendar(calendar))
        has_windows = not found.value.problem
        windows = client.get_calendar_windows(calendar, count=_SHOWN) if has_windows else None
    ahead = windows.windows if windows else ()
    print_one(
        remote,
        found,
        name=lambda calendar: calendar.name,
        page=lambda terminal, calendar: write_calendar(terminal, calendar, ahead, times.now()),
    )


@app.command(name="set")
def set_(
    file: Annotated[
        Path, Parameter(name="FILE", help="One calendar, as YAML; - is standard input.")
    ],
    /,
    *,
    if_match: Annotated[
        str | None, Parameter(help="Only if it is still the one with this etag.")
    ] = None,
    writing: Writing = WRITING,
) -> Exit:
    """Create a calendar from a file, or change it.

    Jobs that use it follow it from their next due time on; a run that already waits for the end
    of a window keeps its time.
    """
    source = read_text(file)
    name = _name_in(source)
    call = Client.put_calendar(name, source.text, plan=writing.dry_run, if_match=if_match)
    try:
        with writing.connect() as client:
            change = ask(client, call)
    except Invalid as error:
        raise FileRefused(source.label, error.message, error.errors) from error
    print_one(
        writing,
        change,
        name=lambda change: change.name,
        page=lambda terminal, change: write_change(terminal, f"calendar {change.name}", change),
    )
    return exit_of_change(change.value)


@app.command
def delete(calendar: Name, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a calendar that no job uses."""
    terminal = destroying.terminal()
    with destroying.connect() as client:
        found = client.get_calendar(calendar)
        if destroying.dry_run:
            users = f"; used by {', '.join(found.used_by)}" if found.used_by else ""
            destroying.rehearse(f"would delete calendar {found.name}{users}")
        question = f"delete calendar {inert(found.name)}?"
        terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
        client.delete_calendar(found.name, if_match=found.etag or None)
    terminal.tell(f"deleted calendar {inert(found.name)}")


def _name_in(source: NamedText) -> str:
    from rota.runtime import offline  # slow to import, and not for the other verbs

    try:
        name = offline.read_mapping(source.text).get("name")
    except offline.Invalid as error:
        raise FileRefused(source.label, "the calendar cannot be read", error.problems) from error
    if not isinstance(name, str):
        hint = "begin the file with a line such as name: weekends"
        raise CommandFailed(f"{source.label} has no name", code=Exit.INVALID_FILE, hint=hint)
    return name
