"""The runs of a job: history, ledger, trigger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from starlette.responses import Response

from rota.domain.errors import Invalid, Problem
from rota.domain.ids import instant, micros
from rota.domain.schedule.expressions import Reading
from rota.domain.schedule.sources import LAST_MICROS
from rota.operations import runs
from rota.operations.submissions import trigger_batch
from rota.operations.why import see_run, see_runs
from rota.ports.records import RunQuery
from rota.server.gateway.auth import API, Operator
from rota.server.gateway.instants import (
    FromQuery,
    ToQuery,
    as_said,
    looking_ahead,
    looking_back,
    read_times,
    zone_of,
)
from rota.server.gateway.paging import (
    MAX_INTEGER,
    Cursor,
    Limit,
    decode_cursor,
    encode_cursor,
    listing,
)
from rota.server.gateway.shapes.job import LedgerShape
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.shapes.run import BatchBody, BatchShape, RunShape, TriggerBody
from rota.server.gateway.wiring import IdempotencyKey, NamedJob, UsedBackends, api_router

router = api_router("jobs")
_EVER = instant(0)
_THE_END = instant(LAST_MICROS)


@router.get("/jobs/{job}/runs")
async def list_history(
    backends: UsedBackends, job: NamedJob, limit: Limit = 100, cursor: Cursor = None
) -> Listing[RunShape]:
    """The runs of a job, newest first."""
    query = RunQuery(
        project=job.project,
        job_id=job.id,
        before_seq=decode_cursor("runs", cursor, MAX_INTEGER),
        limit=limit + 1,
    )
    found = await see_runs(backends, query)
    return listing(found, limit, RunShape.of, lambda run: encode_cursor("runs", run.seq))


@router.post("/jobs/{job}/runs", status_code=202, responses={200: {"model": RunShape}})
async def trigger_run(
    actor: Operator,
    backends: UsedBackends,
    job: NamedJob,
    response: Response,
    body: TriggerBody | None = None,
    idempotency_key: IdempotencyKey = "",
) -> RunShape:
    """Make a run of a job, now or at a time; 200 if the idempotency key was seen before."""
    body = body or TriggerBody()
    reading = looking_ahead(await backends.store.now(), zone_of(job))
    [at] = read_times(reading, {"at": body.at})
    said = as_said(body.at)
    options = runs.TriggerOptions(body.inputs, at, body.priority, idempotency_key, said)
    run, is_repeat = await runs.trigger(backends, job, options, actor=actor.name)
    response.headers["Location"] = f"{API}/runs/{run.id}"
    if is_repeat:
        response.status_code = 200
    return RunShape.of(await see_run(backends, run))


@router.post("/jobs/{job}/runs:batch", status_code=202, responses={200: {"model": BatchShape}})
async def trigger_runs(
    actor: Operator,
    backends: UsedBackends,
    job: NamedJob,
    response: Response,
    body: BatchBody,
    idempotency_key: IdempotencyKey = "",
) -> BatchShape:
    """Make one run of a job for each set of inputs, all or none."""
    ids, is_repeat = await trigger_batch(
        backends, job, body.inputs, actor=actor.name, idempotency_key=idempotency_key
    )
    if is_repeat:
        response.status_code = 200
    return BatchShape(runs=list(ids))


@dataclass(frozen=True, slots=True)
class _Range:
    """Which due times: `since` and `until` are other words for `from` and `to`."""

    start: FromQuery = None
    end: ToQuery = None
    since: Annotated[str | None, Query(max_length=100, description="the same as `from`")] = None
    until: Annotated[str | None, Query(max_length=100, description="the same as `to`")] = None

    def bounds(self, reading: Reading) -> tuple[datetime, datetime]:
        """By default all that has its answer, also of what is still to come."""
        written = {"from": self.start or self.since, "to": self.end or self.until}
        start, end = read_times(reading, written, code="malformed")
        if start and end and start > end:
            problem = Problem("from lies after to", "from")
            raise Invalid("the range is empty", [problem], code="empty_range")
        return start or _EVER, end or _THE_END


@router.get("/jobs/{job}/ledger")
async def list_ledger(
    backends: UsedBackends,
    job: NamedJob,
    wanted: Annotated[_Range, Depends()],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[LedgerShape]:
    """What became of each due time of a job, the newest first."""
    start, end = wanted.bounds(looking_back(await backends.store.now(), zone_of(job)))
    before = min(decode_cursor("ledger", cursor, LAST_MICROS + 1), LAST_MICROS + 1)
    end = min(end, instant(before - 1))
    found = await backends.store.ledger(job.id, start, end, limit + 1, newest_first=True)
    return listing(
        found,
        limit,
        LedgerShape.model_validate,
        lambda entry: encode_cursor("ledger", micros(entry.first)),
    )
