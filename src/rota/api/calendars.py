"""Calendars, and when they keep jobs from running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from rota.api.answers import UNSENT, Answer, ChangeWord, Instant, one_of

Inside = Annotated[
    str, one_of("What becomes of a due time inside a blackout.", "skip", "run_after")
]


class Holidays(Answer, frozen=True, kw_only=True):
    country: str
    subdivision: str = ""  # "" = nationwide


class Calendar(Answer, frozen=True, kw_only=True):
    """Named windows in which the jobs that use it do not run."""

    project: str = "default"
    name: str
    version: int = 0
    etag: str = ""
    windows: tuple[str, ...] = ()
    holidays: Holidays | None = None  # None: it has none
    timezone: str = "UTC"
    inside: Inside = ""
    words: str = ""  # "" if the server cannot read it
    problem: str = ""  # why it cannot; jobs that use it do not fire
    updated_by: str = ""
    updated_at: Instant = UNSENT


class CalendarDetail(Calendar, frozen=True, kw_only=True):
    """A calendar, and who uses it."""

    used_by: tuple[str, ...] = ()  # names of jobs
    document: Mapping[str, Any] = {}  # in the job file's own vocabulary
    yaml: str = ""  # the same, as `rota calendar set` reads it


class CalendarWindow(Answer, frozen=True, kw_only=True):
    """When nothing may start."""

    begins: Instant
    ends: Instant  # the first instant outside


class CalendarWindows(Answer, frozen=True, kw_only=True):
    windows: tuple[CalendarWindow, ...] = ()


class CalendarChange(Answer, frozen=True, kw_only=True):
    """Effect that saving a calendar has, or would have."""

    name: str
    change: ChangeWord
    words: str = ""
    etag: str = ""
    differences: tuple[str, ...] = ()
    applied: bool = False
