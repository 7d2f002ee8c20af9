"""Times in requests: with an offset, or on the clocks of the job that is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import Field

from rota.domain.errors import Invalid, Problem
from rota.domain.job import Job
from rota.domain.schedule.expressions import read_coming_instant, read_instant
from rota.domain.schedule.zones import Zone, load_zone

_WORDS = "ISO 8601; without an offset, on the clocks of the schedule's zone"

TimeText = Annotated[
    str, Field(max_length=100, description=_WORDS, examples=["2026-06-01T22:00:00Z"])
]
FromQuery = Annotated[str | None, Query(alias="from", max_length=100, description=_WORDS)]
ToQuery = Annotated[str | None, Query(alias="to", max_length=100, description=_WORDS)]


def zone_named(name: str) -> Zone | None:
    """None if this server does not know it: then a time needs an offset."""
    try:
        return load_zone(name)
    except ValueError:
        return None


def read_times(
    zone: Zone | None, written: Mapping[str, str | None], *, code: str = "invalid"
) -> list[datetime | None]:
    """The times of a request by their names, in that order; `Invalid` has all that is wrong."""
    return _read(written, lambda text: read_instant(text, zone), code)


def read_range(zone: Zone | None, start: str, end: str | None) -> tuple[datetime, datetime | None]:
    """The times `from` and `to` of a request that must have the first."""
    first, last = read_times(zone, {"from": start, "to": end})
    assert first is not None, "it is given"
    return first, last


def read_pause(job: Job, until: str | None, now: datetime) -> datetime | None:
    """The end of a pause, `11:00` for the next time that it is so late."""
    zone = zone_of(job)
    [end] = _read({"until": until}, lambda text: read_coming_instant(text, zone, now), "invalid")
    return end


def zone_of(job: Job) -> Zone | None:
    return zone_named(str(job.document.get("timezone", "UTC")))


def _read(
    written: Mapping[str, str | None], read: Callable[[str], datetime], code: str
) -> list[datetime | None]:
    found: list[datetime | None] = []
    problems: list[Problem] = []
    for name, text in written.items():
        try:
            found.append(None if text is None else read(text))
        except ValueError as error:
            problems.append(Problem(str(error), name))
    if problems:
        count = "a time" if len(problems) == 1 else f"{len(problems)} times"
        raise Invalid(f"{count} cannot be read", problems, code=code)
    return found
