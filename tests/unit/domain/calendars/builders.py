"""Blackouts in one line."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from rota.domain.calendars import (
    Blackout,
    Calendar,
    Inside,
    compile_calendar,
    end_of_blackout,
    next_windows,
)
from rota.domain.errors import Invalid
from tests.unit.domain.schedule.builders import utc


def blackout(*windows: str, name: str = "quiet", **settings: Any) -> Blackout:
    return compile_calendar(Calendar(name, windows, **settings))


def waiting(*windows: str, name: str = "quiet", **settings: Any) -> Blackout:
    """One that lets runs wait for its end."""
    return blackout(*windows, name=name, inside=Inside.RUN_AFTER, **settings)


def closed(since: str, blackout: Blackout, count: int = 3) -> list[str]:
    """The next windows on the calendar's own clocks: `2026-01-03 00:00 – 2026-01-05 00:00`."""
    zone = ZoneInfo(blackout.calendar.timezone)
    return [
        " – ".join(
            f"{time.astimezone(zone).replace(tzinfo=None).isoformat(' ', 'minutes')}"
            for time in (found.begins, found.ends)
        )
        for found in next_windows(blackout, utc(since), count)
    ]


def end(time: str, *blackouts: Blackout) -> str:
    """The first free instant, on UTC clocks; "" if there is none."""
    found = end_of_blackout(blackouts, utc(time))
    return found.replace(tzinfo=None).isoformat(" ") if found else ""


def errors_of(*windows: str, **settings: Any) -> list[str]:
    """What is wrong with a calendar, each with its path; none if it compiles."""
    try:
        blackout(*windows, **settings)
    except Invalid as error:
        return [str(problem) for problem in error.problems]
    return []
