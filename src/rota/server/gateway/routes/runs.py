"""Runs: list, look, explain, cancel, retry, resolve."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rota.domain.states import RunState
from rota.operations import runs
from rota.operations.carts import find_cart
from rota.operations.why import see_run, see_runs, why
from rota.ports.records import RunQuery
from rota.server.gateway.auth import API, Operator
from rota.server.gateway.filters import RunFilter, parse_filter
from rota.server.gateway.instants import ZoneQuery, looking_back, zone_given
from rota.server.gateway.paging import (
    MAX_INTEGER,
    Cursor,
    Limit,
    decode_cursor,
    encode_cursor,
    listing,
)
from rota.server.gateway.shapes.event import EventShape
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.shapes.run import ResolveBody, RunDetail, RunShape
from rota.server.gateway.shapes.why import WhyShape
from rota.server.gateway.wiring import NamedRun, Project, Settings, UsedBackends, api_router

router = api_router("runs")
_RESOLUTIONS = {
    "completed": RunState.COMPLETED,
    "failed": RunState.FAILED,
    "retry": RunState.SCHEDULED,
}
_Term = Annotated[str | None, Query(max_length=1_000)]


@router.get("/runs")
async def list_runs(
    backends: UsedBackends,
    project: Project,
    where: Annotated[
        str, Query(max_length=2_000, description="such as `state:failed job:nightly-* since:6h`")
    ] = "",
    state: _Term = None,
    job: _Term = None,
    trigger: _Term = None,
    backfill: _Term = None,
    cart: _Term = None,
    since: _Term = None,
    until: _Term = None,
    active: _Term = None,
    timezone: ZoneQuery = "UTC",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[RunShape]:
    """Runs, newest first. `where` and the single terms must all hold."""
    given = {
        "state": state,
        "job": job,
        "trigger": trigger,
        "backfill": backfill,
        "cart": cart,
        "since": since,
        "until": until,
        "active": active,
    }
    terms = [(key, value) for key, value in given.items() if value is not None]
    reading = looking_back(await backends.store.now(), zone_given(timezone))
    wanted = parse_filter(where, terms, reading)
    before = decode_cursor("runs", cursor, MAX_INTEGER)
    if wanted.states is not None and not wanted.states:
        return Listing(items=[])
    if wanted.cart is not None:
        cart_named = await find_cart(backends, wanted.cart, project=project)
        wanted = replace(wanted, cart=cart_named.id)
    found = await see_runs(backends, _query(project, wanted, before, limit + 1))
    return listing(found, limit, RunShape.of, lambda run: encode_cursor("runs", run.seq))


def _query(project: str, wanted: RunFilter, before: int, limit: int) -> RunQuery:
    return RunQuery(
        project=project,
        job_like=wanted.job_like,
        states=sorted(wanted.states or ()),
        trigger=wanted.trigger,
        backfill=wanted.backfill,
        cart=wanted.cart,
        since=wanted.since,
        until=wanted.until,
        before_seq=before,
        limit=limit,
    )


@router.get("/runs/{run}")
async def show_run(backends: UsedBackends, run: NamedRun) -> RunDetail:
    """A run with its attempts."""
    attempts = await backends.store.attempts(run.id)
    late_results = await backends.store.late_results(run.id)
    return RunDetail.with_attempts(await see_run(backends, run), attempts, late_results)


@router.get("/runs/{run}/why")
async def explain_run(backends: UsedBackends, run: NamedRun) -> WhyShape:
    """Where a run stands and what would move it on."""
    return WhyShape.of(await why(backends, run))


@router.get("/runs/{run}/events")
async def list_run_events(
    backends: UsedBackends,
    settings: Settings,
    run: NamedRun,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[EventShape]:
    """What happened to a run, in order."""
    after = decode_cursor("events", cursor, 0)
    found = await backends.store.events(after, limit + 1, ids=[run.id])
    names: dict[str, str] = {run.id: run.job}
    return listing(
        found,
        limit,
        lambda event: EventShape.of(event, settings.base_url, names, only=run.id),
        lambda event: encode_cursor("events", event.seq),
    )


@router.post("/runs/{run}:cancel")
async def cancel_run(actor: Operator, backends: UsedBackends, run: NamedRun) -> RunShape:
    """Cancel a run that waits, or ask one that is live to stop."""
    return RunShape.of(await runs.cancel(backends, run, actor=actor.name))


@router.post("/runs/{run}:retry", status_code=202)
async def retry_run(
    actor: Operator, backends: UsedBackends, run: NamedRun, response: Response
) -> RunShape:
    """A new run like one that has ended, with the same inputs."""
    new = await runs.retry(backends, run, actor=actor.name)
    response.headers["Location"] = f"{API}/runs/{new.id}"
    return RunShape.of(await see_run(backends, new))


@router.post("/runs/{run}:resolve")
async def resolve_run(
    actor: Operator, backends: UsedBackends, run: NamedRun, body: ResolveBody
) -> RunShape:
    """Say what became of an UNKNOWN run."""
    state = _RESOLUTIONS[body.outcome]
    resolved = await runs.resolve(backends, run, state, actor=actor.name)
    return RunShape.of(await see_run(backends, resolved))
