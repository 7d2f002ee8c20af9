"""Calendars: list, look, save, delete."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rota.domain.calendars import compile_calendar, next_windows
from rota.operations.calendars import delete_calendar, plan_calendar, save_calendar
from rota.operations.differences import Change
from rota.ports.records import JobQuery, StoredCalendar
from rota.server.gateway.auth import Editor
from rota.server.gateway.etags import IfMatch, quote, unquote
from rota.server.gateway.instants import FromQuery, looking_ahead, read_times
from rota.server.gateway.jobfiles import CALENDAR_BODY, SentCalendar
from rota.server.gateway.paging import Cursor, Limit, decode_cursor, encode_cursor, listing
from rota.server.gateway.shapes.calendar import (
    CalendarChangeShape,
    CalendarDetail,
    CalendarShape,
    CalendarWindowShape,
    CalendarWindowsShape,
)
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.wiring import NamedCalendar, Project, UsedBackends, api_router

router = api_router("calendars")


@router.get("/calendars")
async def list_calendars(
    backends: UsedBackends, project: Project, limit: Limit = 100, cursor: Cursor = None
) -> Listing[CalendarShape]:
    """Calendars by name."""
    after = decode_cursor("calendars", cursor, "")
    found = [it for it in await backends.store.calendars(project) if it.calendar.name > after]
    # Holidays take a while to be looked up, and leases are renewed on this loop.
    return await asyncio.to_thread(_listed, found, limit)


def _listed(found: list[StoredCalendar], limit: int) -> Listing[CalendarShape]:
    return listing(
        found, limit, CalendarShape.of, lambda it: encode_cursor("calendars", it.calendar.name)
    )


@router.get("/calendars/{calendar}")
async def show_calendar(
    backends: UsedBackends, calendar: NamedCalendar, response: Response
) -> CalendarDetail:
    """A calendar, and the jobs that use it."""
    query = JobQuery(project=calendar.project, calendar=calendar.calendar.name)
    names = [job.name for job in await backends.store.jobs(query)]
    shown = await asyncio.to_thread(CalendarDetail.of_used, calendar, names)
    response.headers["ETag"] = quote(shown.etag)
    return shown


@router.put(
    "/calendars/{calendar}",
    responses={201: {"model": CalendarChangeShape}},
    openapi_extra=CALENDAR_BODY,
)
async def put_calendar(
    actor: Editor,
    backends: UsedBackends,
    project: Project,
    new: SentCalendar,
    response: Response,
    plan: Annotated[bool, Query(description="only say what would be changed")] = False,
    if_match: IfMatch = "",
) -> CalendarChangeShape:
    """Create or change a calendar; the jobs that use it follow it from their next due time on."""
    tag = unquote(if_match)
    if plan:
        change = await plan_calendar(backends, project, new, if_match=tag)
    else:
        change = await save_calendar(backends, project, new, actor=actor.name, if_match=tag)
        if change.change is Change.NEW:
            response.status_code = 201
    response.headers["ETag"] = quote(change.etag)
    return CalendarChangeShape.of(change, applied=not plan)


@router.delete("/calendars/{calendar}", status_code=204)
async def remove_calendar(
    actor: Editor, backends: UsedBackends, calendar: NamedCalendar, if_match: IfMatch = ""
) -> None:
    """Forget a calendar that no job uses."""
    await delete_calendar(backends, calendar, actor=actor.name, if_match=unquote(if_match))


@router.get("/calendars/{calendar}/windows")
async def list_windows(
    backends: UsedBackends,
    calendar: NamedCalendar,
    start: FromQuery = None,
    count: Annotated[int, Query(ge=1, le=100)] = 5,
) -> CalendarWindowsShape:
    """The next stretches in which nothing may start, the current one included."""
    blackout = await asyncio.to_thread(compile_calendar, calendar.calendar)
    now = await backends.store.now()
    reading = looking_ahead(now, blackout.zone)
    [since] = read_times(reading, {"from": start}, code="malformed")
    after = since or now
    found = await asyncio.to_thread(next_windows, blackout, after, count)
    return CalendarWindowsShape(
        windows=[CalendarWindowShape.model_validate(window) for window in found]
    )
