"""What the server answers about calendars."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rota.sdk.answers import Answer


class Holidays(Answer, frozen=True, kw_only=True):
    country: str
    subdivision: str = ""  # "" = nationwide


class Calendar(Answer, frozen=True, kw_only=True):
    """Named windows in which the jobs that use it do not run."""

    name: str
    project: str = "default"
    version: int = 0
    etag: str = ""
    windows: tuple[str, ...] = ()
    holidays: Holidays | None = None
    timezone: str = "UTC"
    inside: str = ""  # skip, run_after
    words: str = ""
    problem: str = ""  # why the server cannot read it; jobs that use it do not fire
    updated_by: str = ""
    updated_at: datetime | None = None


class CalendarDetail(Calendar, frozen=True, kw_only=True):
    used_by: tuple[str, ...] = ()  # names of jobs
    document: Mapping[str, Any] = {}  # in the job file's own vocabulary
    yaml: str = ""


class CalendarWindow(Answer, frozen=True, kw_only=True):
    """When nothing may start."""

    begins: datetime
    ends: datetime  # the first instant outside


class CalendarWindows(Answer, frozen=True, kw_only=True):
    windows: tuple[CalendarWindow, ...] = ()


class CalendarChange(Answer, frozen=True, kw_only=True):
    """What saving a calendar does, or would do."""

    name: str
    change: str  # new, changed, unchanged
    words: str = ""
    etag: str = ""
    differences: tuple[str, ...] = ()
    applied: bool = False
