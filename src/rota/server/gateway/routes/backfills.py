"""Backfills: running due times of the past."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rota.operations import backfills
from rota.operations.backfills import BackfillRequest
from rota.server.gateway.auth import API, Operator
from rota.server.gateway.instants import as_said, looking_back, read_range, zone_of
from rota.server.gateway.shapes.backfill import BackfillBody, BackfillShape
from rota.server.gateway.wiring import IdempotencyKey, NamedJob, UsedBackends, api_router

router = api_router("jobs")


@router.post("/jobs/{job}:backfill", status_code=202, responses={200: {"model": BackfillShape}})
async def backfill_job(
    actor: Operator,
    backends: UsedBackends,
    job: NamedJob,
    response: Response,
    body: BackfillBody,
    plan: Annotated[bool, Query(description="only say what would run")] = False,
    idempotency_key: IdempotencyKey = "",
) -> BackfillShape:
    """Run due times of the past; 200 for a plan, or if the idempotency key was seen before."""
    reading = looking_back(await backends.store.now(), zone_of(job))
    since, until = read_range(reading, body.since, body.until)
    said = as_said(body.since, body.until)
    request = BackfillRequest(since, until, body.only, body.max_parallel, idempotency_key, said)
    if plan:
        response.status_code = 200
        return BackfillShape.of_plan(await backfills.plan(backends, job, request))
    made, is_repeat = await backfills.backfill(backends, job, request, actor=actor.name)
    response.headers["Location"] = f"{API}/runs?backfill={made.id}"
    if is_repeat:
        response.status_code = 200
    return BackfillShape.of(made)
