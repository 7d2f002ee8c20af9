"""Calendars: list, look, save, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from rota.api import calendars as api
from rota.api.answers import Page
from rota.domain.calendars import compile_calendar, in_words, next_windows
from rota.domain.errors import Invalid
from rota.domain.jobfile import to_block
from rota.domain.jobfile.calendars import calendar_document
from rota.domain.jobfile.export import Change
from rota.operations.calendars import delete_calendar, etag_of, plan_calendar, save_calendar
from rota.ports.records import JobQuery, StoredCalendar
from rota.server.gateway.auth import Editor, Viewer
from rota.server.gateway.filters import Cursor, Limit, decode_cursor, encode_cursor, page
from rota.server.gateway.jobfiles import CALENDAR_BODY, SentCalendar
from rota.server.gateway.parameters import (
    FromQuery,
    IfMatch,
    NamedCalendar,
    Project,
    UsedEngine,
    api_router,
    looking_ahead,
    quote,
    read_times,
    unquote,
)
from rota.server.gateway.routing import fill

router = api_router("calendars")


def calendar_answer(stored: StoredCalendar) -> api.Calendar:
    return fill(api.Calendar, stored, **_described(stored))


def _detail_answer(stored: StoredCalendar, jobs: Iterable[str]) -> api.CalendarDetail:
    document = calendar_document(stored.calendar)
    return fill(
        api.CalendarDetail,
        stored,
        **_described(stored),
        used_by=tuple(jobs),
        document=document,
        yaml=to_block(document),
    )


def _described(stored: StoredCalendar) -> dict[str, Any]:
    """Return the description of a stored calendar, and whether this server can read it."""
    calendar = stored.calendar
    words, problem = _words(stored)
    return {
        "name": calendar.name,
        "etag": etag_of(calendar),
        "windows": calendar.windows,
        "holidays": fill(api.Holidays, calendar.holidays) if calendar.holidays else None,
        "timezone": calendar.timezone,
        "inside": calendar.inside,
        "words": words,
        "problem": problem,
    }


def _words(stored: StoredCalendar) -> tuple[str, str]:
    try:
        return in_words(compile_calendar(stored.calendar)), ""
    except Invalid as error:
        return "", "; ".join(map(str, error.problems))


@router.get("/calendars")
async def list_calendars(
    caller: Viewer, engine: UsedEngine, project: Project, limit: Limit = 100, cursor: Cursor = None
) -> Page[api.Calendar]:
    """Calendars by name."""
    after = decode_cursor("calendars", cursor, "")
    found = [it for it in await engine.store.calendars(project) if it.calendar.name > after]
    # Holidays take a while to be looked up, and leases are renewed on this loop.
    return await asyncio.to_thread(_listed, found, limit)


def _listed(found: list[StoredCalendar], limit: int) -> Page[api.Calendar]:
    return page(
        found, limit, calendar_answer, lambda it: encode_cursor("calendars", it.calendar.name)
    )


@router.get("/calendars/{calendar}")
async def show_calendar(
    caller: Viewer, engine: UsedEngine, calendar: NamedCalendar, response: Response
) -> api.CalendarDetail:
    """A calendar, and the jobs that use it."""
    query = JobQuery(project=calendar.project, calendar=calendar.calendar.name)
    names = [job.name for job in await engine.store.jobs(query)]
    shown = await asyncio.to_thread(_detail_answer, calendar, names)
    response.headers["ETag"] = quote(shown.etag)
    return shown


@router.put(
    "/calendars/{calendar}",
    responses={201: {"model": api.CalendarChange}},
    openapi_extra=CALENDAR_BODY,
)
async def put_calendar(
    actor: Editor,
    engine: UsedEngine,
    project: Project,
    new: SentCalendar,
    response: Response,
    plan: Annotated[bool, Query(description="only say what would be changed")] = False,
    if_match: IfMatch = "",
) -> api.CalendarChange:
    """Create or change a calendar; the jobs that use it follow it from their next due time on."""
    tag = unquote(if_match)
    if plan:
        change = await plan_calendar(engine, project, new, if_match=tag)
    else:
        change = await save_calendar(engine, project, new, actor=actor.name, if_match=tag)
        if change.change is Change.NEW:
            response.status_code = 201
    response.headers["ETag"] = quote(change.etag)
    return fill(api.CalendarChange, change, applied=not plan)


@router.delete("/calendars/{calendar}", status_code=204)
async def remove_calendar(
    actor: Editor, engine: UsedEngine, calendar: NamedCalendar, if_match: IfMatch = ""
) -> None:
    """Forget a calendar that no job uses."""
    await delete_calendar(engine, calendar, actor=actor.name, if_match=unquote(if_match))


@router.get("/calendars/{calendar}/windows")
async def list_windows(
    caller: Viewer,
    engine: UsedEngine,
    calendar: NamedCalendar,
    start: FromQuery = None,
    count: Annotated[int, Query(ge=1, le=100)] = 5,
) -> api.CalendarWindows:
    """The next stretches in which nothing may start, the current one included."""
    blackout = await asyncio.to_thread(compile_calendar, calendar.calendar)
    now = await engine.store.now()
    reading = looking_ahead(now, blackout.zone)
    [since] = read_times(reading, {"from": start}, code="malformed")
    after = since or now
    found = await asyncio.to_thread(next_windows, blackout, after, count)
    return api.CalendarWindows(windows=tuple(fill(api.CalendarWindow, it) for it in found))
