"""Times in requests, as `domain.schedule.written_times` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import Field

from rota.domain.errors import Invalid, Problem
from rota.domain.job import Job
from rota.domain.schedule.expressions import Looking, Reading, is_relative, read_instant
from rota.domain.schedule.zones import Zone, load_zone

_WORDS = (
    "`5m`, `yesterday`, `today 14:00`, `2026-11-18`, ISO 8601; without an offset, on the clocks of"
    " the schedule's zone"
)

TimeText = Annotated[
    str, Field(max_length=100, description=_WORDS, examples=["2026-06-01T22:00:00Z"])
]
FromQuery = Annotated[str | None, Query(alias="from", max_length=100, description=_WORDS)]
ToQuery = Annotated[str | None, Query(alias="to", max_length=100, description=_WORDS)]
ZoneQuery = Annotated[
    str,
    Query(max_length=100, description="on whose clocks days and times without an offset are"),
]


def zone_named(name: str) -> Zone | None:
    """None if this server does not know it: then a time needs an offset."""
    try:
        return load_zone(name)
    except ValueError:
        return None


def zone_given(name: str) -> Zone:
    """The zone that a request names under `timezone`; `Invalid` if there is none."""
    try:
        return load_zone(name)
    except ValueError as error:
        problem = Problem(str(error), "timezone")
        raise Invalid("the time zone cannot be read", [problem], code="malformed") from error


def zone_of(job: Job) -> Zone | None:
    return zone_named(str(job.document.get("timezone", "UTC")))


def looking_back(now: datetime, zone: Zone | None) -> Reading:
    """How times are read where the past is asked for: `5m` is five minutes ago."""
    return Reading(now, zone, Looking.BACK)


def looking_ahead(now: datetime, zone: Zone | None) -> Reading:
    """How times are read where something is to come: `5m` is in five minutes."""
    return Reading(now, zone, Looking.AHEAD)


def read_times(
    reading: Reading, written: Mapping[str, str | None], *, code: str = "invalid"
) -> list[datetime | None]:
    """The times of a request by their names, in that order; `Invalid` has all that is wrong."""
    found: list[datetime | None] = []
    problems: list[Problem] = []
    for name, text in written.items():
        try:
            found.append(None if text is None else read_instant(text, reading))
        except ValueError as error:
            problems.append(Problem(str(error), name))
    if problems:
        count = "a time" if len(problems) == 1 else f"{len(problems)} times"
        raise Invalid(f"{count} cannot be read", problems, code=code)
    return found


def read_range(reading: Reading, start: str, end: str | None) -> tuple[datetime, datetime | None]:
    """The times `from` and `to` of a request that must have the first."""
    first, last = read_times(reading, {"from": start, "to": end})
    assert first is not None, "it is given"
    return first, last


def as_said(*written: str | None) -> str:
    """Times of a request as its repetition has them too; "" if they mean the same instants then.

    An idempotency key belongs to what was asked for. A minute later, `5m` is still the same
    request, though the instant is another one.
    """
    texts = [text or "" for text in written]
    return " / ".join(texts) if any(map(is_relative, texts)) else ""
