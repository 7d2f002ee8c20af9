"""Calls about calendars."""

from __future__ import annotations

from collections.abc import Mapping

from rota.api.answers import Page
from rota.api.calendars import Calendar, CalendarChange, CalendarDetail, CalendarWindows
from rota.sdk.exchange import Call, Instant, get, path_of, put
from rota.sdk.verbs import Verb


def list_calendars(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Calendar]]:
    """List calendars by name."""
    return get(Page[Calendar], "/calendars", limit=limit, cursor=cursor)


def get_calendar(calendar: str) -> Call[CalendarDetail]:
    """Get a calendar, and the jobs that use it."""
    return get(CalendarDetail, path_of("calendars", calendar))


def put_calendar(
    calendar: str,
    document: Mapping[str, object] | str,
    *,
    plan: bool = False,
    if_match: str | None = None,
) -> Call[CalendarChange]:
    """Create or change a calendar, given as in a job file; with `plan`, only return the change.

    Problems of a text (YAML or JSON) have line and column. `if_match` is a calendar's etag: if it
    changed since then, this is refused.
    """
    call = put(CalendarChange, path_of("calendars", calendar), document, plan=plan or None)
    if isinstance(document, str):
        call = call.with_file(document)
    return call.if_match(if_match)


def delete_calendar(calendar: str, *, if_match: str | None = None) -> Call[None]:
    """Delete a calendar that no job uses."""
    return Call(type(None), "DELETE", path_of("calendars", calendar)).if_match(if_match)


def get_calendar_windows(
    calendar: str, *, start: Instant | None = None, count: int | None = None
) -> Call[CalendarWindows]:
    """List the next windows in which nothing may start, the current one included."""
    call = get(CalendarWindows, path_of("calendars", calendar, "windows"), count=count)
    return call.with_query(**{"from": start})


class CalendarVerbs:
    delete_calendar = Verb(delete_calendar)
    get_calendar = Verb(get_calendar)
    get_calendar_windows = Verb(get_calendar_windows)
    list_calendars = Verb(list_calendars)
    put_calendar = Verb(put_calendar)
