"""Past due times: their ledger, and backfills that run them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from pydantic import Field
from starlette.responses import Response

from rota.api import backfills as api
from rota.api.answers import Page
from rota.domain.backfill import (
    DEFAULT_MAX_PARALLEL,
    MOST_PARALLEL,
    Backfill,
    BackfillPlan,
    Only,
    Skipped,
)
from rota.domain.errors import Invalid, Problem
from rota.domain.ids import instant, micros
from rota.domain.schedule.expressions import Reading
from rota.domain.schedule.sources import LAST_MICROS
from rota.operations import backfills
from rota.operations.backfills import BackfillRequest
from rota.ports.records import LedgerEntry
from rota.server.gateway.auth import API, Operator, Viewer
from rota.server.gateway.filters import Cursor, Limit, decode_cursor, encode_cursor, page
from rota.server.gateway.parameters import (
    Body,
    FromQuery,
    IdempotencyKey,
    NamedJob,
    PastJob,
    TimeText,
    ToQuery,
    UsedEngine,
    api_router,
    looking_back,
    read_range,
    read_times,
    times_as_written,
    zone_of,
)
from rota.server.gateway.proxies import link_to
from rota.server.gateway.routing import fill

router = api_router("jobs")
_EVER = instant(0)
_THE_END = instant(LAST_MICROS)


class BackfillBody(Body):
    """A range of due times, both ends included."""

    since: TimeText = Field(alias="from")
    until: TimeText | None = Field(None, alias="to")  # None: up to now
    only: Only | None = None  # None: all due times of the range
    max_parallel: int = Field(DEFAULT_MAX_PARALLEL, ge=1, le=MOST_PARALLEL)


def backfill_answer(backfill: Backfill) -> api.Backfill:
    return fill(api.Backfill, backfill, skipped=_skipped(backfill.skipped))


def _plan_answer(plan: BackfillPlan) -> api.Backfill:
    skipped = _skipped(plan.skipped)
    return fill(api.Backfill, plan, id=None, runs=len(plan.repeats), skipped=skipped)


def _skipped(groups: Iterable[Skipped]) -> tuple[api.SkippedDueTimes, ...]:
    return tuple(fill(api.SkippedDueTimes, group) for group in groups)


def _ledger_answer(entry: LedgerEntry) -> api.LedgerEntry:
    return fill(api.LedgerEntry, entry)


@router.post("/jobs/{job}:backfill", status_code=202, responses={200: {"model": api.Backfill}})
async def backfill_job(
    actor: Operator,
    engine: UsedEngine,
    job: NamedJob,
    response: Response,
    body: BackfillBody,
    plan: Annotated[bool, Query(description="only say what would run")] = False,
    idempotency_key: IdempotencyKey = "",
) -> api.Backfill:
    """Run due times of the past; 200 for a plan, or if the idempotency key was seen before."""
    reading = looking_back(await engine.store.now(), zone_of(job))
    since, until = read_range(reading, body.since, body.until)
    said = times_as_written(body.since, body.until)
    request = BackfillRequest(since, until, body.only, body.max_parallel, idempotency_key, said)
    if plan:
        response.status_code = 200
        return _plan_answer(await backfills.plan(engine, job, request))
    made, is_repeat = await backfills.backfill(engine, job, request, actor=actor.name)
    response.headers["Location"] = link_to(f"{API}/runs?backfill={made.id}", job.project)
    if is_repeat:
        response.status_code = 200
    return backfill_answer(made)


@dataclass(frozen=True, slots=True)
class _Range:
    """Range of due times; `since` and `until` are synonyms of `from` and `to`."""

    start: FromQuery = None
    end: ToQuery = None
    since: Annotated[str | None, Query(max_length=100, description="the same as `from`")] = None
    until: Annotated[str | None, Query(max_length=100, description="the same as `to`")] = None

    def bounds(self, reading: Reading) -> tuple[datetime, datetime]:
        """Return both ends; by default all due times with an answer, future ones included."""
        written = {"from": self.start or self.since, "to": self.end or self.until}
        start, end = read_times(reading, written, code="malformed")
        if start and end and start > end:
            problem = Problem("from lies after to", "from")
            raise Invalid("the range is empty", [problem], code="empty_range")
        return start or _EVER, end or _THE_END


@router.get("/jobs/{job}/ledger")
async def list_ledger(
    caller: Viewer,
    engine: UsedEngine,
    job: PastJob,
    wanted: Annotated[_Range, Depends()],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.LedgerEntry]:
    """Answers to the due times of a job, the newest first; also of one that was deleted."""
    start, end = wanted.bounds(looking_back(await engine.store.now(), zone_of(job)))
    before = min(decode_cursor("ledger", cursor, LAST_MICROS + 1), LAST_MICROS + 1)
    end = min(end, instant(before - 1))
    found = await engine.store.ledger(job.id, start, end, limit + 1, newest_first=True)
    return page(
        found,
        limit,
        _ledger_answer,
        lambda entry: encode_cursor("ledger", micros(entry.first)),
    )
