"""Calendars, and when they keep jobs from running."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rota.domain.calendars import Inside, compile_calendar, in_words
from rota.domain.errors import Invalid
from rota.domain.jobfile import to_block
from rota.domain.jobfile.calendars import calendar_document
from rota.operations.calendars import CalendarChange, etag_of
from rota.operations.differences import Change
from rota.ports.records import StoredCalendar
from rota.server.gateway.shapes.models import Answer


class HolidaysShape(Answer):
    country: str
    subdivision: str  # "" = nationwide


class CalendarShape(Answer):
    """Named windows in which the jobs that use it do not run."""

    project: str
    name: str
    version: int
    etag: str
    windows: list[str]
    holidays: HolidaysShape | None
    timezone: str
    inside: Inside
    words: str  # "" if this server cannot read it
    problem: str  # why it cannot; jobs that use it do not fire
    updated_by: str
    updated_at: datetime

    @classmethod
    def of(cls, stored: StoredCalendar) -> CalendarShape:
        return cls(**_fields(stored))


class CalendarDetail(CalendarShape):
    """A calendar, and who uses it."""

    used_by: list[str]  # names of jobs
    document: dict[str, Any]  # in the job file's own vocabulary
    yaml: str  # the same, as `rota calendar set` reads it

    @classmethod
    def of_used(cls, stored: StoredCalendar, jobs: Iterable[str]) -> CalendarDetail:
        document = calendar_document(stored.calendar)
        text = to_block(document)
        return cls(**_fields(stored), used_by=list(jobs), document=document, yaml=text)


class CalendarWindowShape(Answer):
    """When nothing may start."""

    begins: datetime
    ends: datetime  # the first instant outside


class CalendarWindowsShape(Answer):
    windows: list[CalendarWindowShape]


class CalendarChangeShape(Answer):
    """What saving a calendar does, or would do."""

    name: str
    change: Change
    words: str
    etag: str
    differences: list[str]
    applied: bool

    @classmethod
    def of(cls, change: CalendarChange, *, applied: bool) -> CalendarChangeShape:
        return cls(
            name=change.name,
            change=change.change,
            words=change.words,
            etag=change.etag,
            differences=list(change.differences),
            applied=applied,
        )


def _fields(stored: StoredCalendar) -> dict[str, Any]:
    calendar = stored.calendar
    words, problem = _words(stored)
    return {
        "project": stored.project,
        "name": calendar.name,
        "version": stored.version,
        "etag": etag_of(calendar),
        "windows": list(calendar.windows),
        "holidays": calendar.holidays,
        "timezone": calendar.timezone,
        "inside": calendar.inside,
        "words": words,
        "problem": problem,
        "updated_by": stored.updated_by,
        "updated_at": stored.updated_at,
    }


def _words(stored: StoredCalendar) -> tuple[str, str]:
    try:
        return in_words(compile_calendar(stored.calendar)), ""
    except Invalid as error:
        return "", "; ".join(map(str, error.problems))
