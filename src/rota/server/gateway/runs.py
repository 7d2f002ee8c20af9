"""Runs: trigger, list, look, explain, cancel, retry, resolve, hold, release, reprioritise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from rota.api import runs as api
from rota.api.answers import Page
from rota.api.events import Event
from rota.api.why import Holder, NotReason, Obstacle, OrderOfService, Reserved, Why
from rota.domain.access import ProjectSet
from rota.domain.external import Progress, ReportState, StatusReport, share_done
from rota.domain.ids import RunId
from rota.domain.job import Job
from rota.domain.jobfile.walls import shown_walls
from rota.domain.run import Attempt, Note, OutputState, OutputSummary, Run, StepReport, Trigger
from rota.domain.spec import EXTERNAL_POOL, GREATEST_PRIORITY, LEAST_PRIORITY, Delivery
from rota.domain.states import LEASED_STATES, RunState
from rota.operations import external, runs, why
from rota.operations.carts import find_cart
from rota.operations.engine import Engine
from rota.operations.runs import hold, let_go, linked_runs, set_priority, trigger_batch
from rota.operations.tenants import sight_of
from rota.operations.why import Explanation, in_short, see_run, see_runs
from rota.ports.external import ReportTaken
from rota.ports.records import RunQuery
from rota.server.gateway.auth import (
    API,
    NAME,
    Asking,
    Listed,
    Operator,
    Project,
    Reporter,
    Resolver,
    Stopper,
    Viewer,
)
from rota.server.gateway.events import One, event_page
from rota.server.gateway.filters import (
    MAX_INTEGER,
    CreatedBy,
    Cursor,
    Limit,
    RunFilter,
    creator_meant,
    decode_cursor,
    encode_cursor,
    page,
    parse_filter,
)
from rota.server.gateway.parameters import (
    Body,
    IdempotencyKey,
    NamedJob,
    NamedRun,
    PastJob,
    Settings,
    TimeText,
    UsedEngine,
    ZoneQuery,
    api_router,
    looking_ahead,
    looking_back,
    read_times,
    times_as_written,
    zone_given,
    zone_of,
)
from rota.server.gateway.proxies import link_to
from rota.server.gateway.routing import fill

MAX_BATCH = 10_000
_RESOLUTIONS = {
    "completed": RunState.COMPLETED,
    "failed": RunState.FAILED,
    "retry": RunState.SCHEDULED,
}
_Priority = Annotated[int, Field(ge=LEAST_PRIORITY, le=GREATEST_PRIORITY)]
_Term = Annotated[str | None, Query(max_length=1_000)]

Titles: TypeAlias = Mapping[str, str]  # of steps, by name
_NO_TITLES: Titles = {}

job_router = api_router("jobs", is_busy=True)  # triggering is the busiest of all calls
router = api_router("runs", is_busy=True)


class TriggerBody(Body):
    """How a run is asked for."""

    inputs: dict[str, Any] = Field(default_factory=dict)
    at: TimeText | None = None  # not before; None: now
    priority: _Priority | None = None  # None: the job's


class BatchBody(Body):
    """One run for each set of inputs."""

    inputs: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_BATCH)


class PriorityBody(Body):
    priority: _Priority  # 9 goes first


class ResolveBody(Body):
    """Decision about what became of an UNKNOWN run."""

    outcome: Literal["completed", "failed", "retry"] = Field(alias="as")


# Strict: JSON's `true` is no number, nor is "10".
_Number = Annotated[int, Field(strict=True)]
_Amount = Annotated[float, Field(strict=True)]


class ProgressBody(Body):
    done: _Amount
    total: _Amount | None = None


class ReportBody(Body):
    """How work stands that another system does."""

    state: ReportState
    number: _Number | None = None  # grows with each report; only tokens must have one
    attempt: _Number | None = None  # None: the latest one, or that of the token
    message: str = ""
    progress: _Amount | ProgressBody | None = None  # a number is from 0 to 1
    outputs: dict[str, Any] | None = None  # of a run that completed
    output: str = ""  # text for its log

    def as_report(self) -> StatusReport:
        progress = self.progress
        if isinstance(progress, ProgressBody):
            how_far: Progress | None = Progress(progress.done, progress.total)
        else:
            how_far = None if progress is None else share_done(progress)
        return StatusReport(
            self.state,
            self.number,
            self.attempt,
            self.message,
            how_far,
            self.outputs,
            self.output,
        )


# Whoever shows a run takes it from one of the next three: here a stored state becomes the one that
# people see.


async def run_answer(engine: Engine, run: Run) -> api.Run:
    """Build the answer of a run, with its state as people see it."""
    seen = await see_run(engine, run)
    return seen_answer(seen, (await _notes(engine, [seen])).get(seen.id))


async def run_detail(engine: Engine, run: Run) -> api.RunDetail:
    """Build the answer of a run with its attempts."""
    note = (await _notes(engine, [run])).get(run.id)
    attempts = await engine.store.attempts(run.id)
    late = await engine.store.late_results(run.id)
    version = (run.job_id, run.job_version)
    document = (await engine.store.documents([version])).get(version, {})
    titles = _titles(document)
    after, following = await linked_runs(engine, run)
    seen = await see_run(engine, run)
    probes = (
        await engine.store.probes_about(run.id) if run.delivery is Delivery.AT_MOST_ONCE else []
    )
    probe_of = await engine.store.probed_by(run.id) if run.trigger is Trigger.PROBE else None
    return fill(
        api.RunDetail,
        seen,
        **_worked_out(seen, note),
        attempts=tuple(attempt_answer(each, note, titles) for each in attempts),
        late_results=tuple(fill(api.LateResult, result) for result in late),
        external=await _external(engine, run),
        after=None if after is None else fill(api.LinkedRun, after),
        followed_by=tuple(fill(api.LinkedRun, each) for each in following),
        probes=tuple(fill(api.Probe, each) for each in probes),
        awaits_probe=run.state is RunState.UNKNOWN and bool(probes) and probes[-1].is_awaited,
        probe_of=probe_of,
        title=document.get("title", ""),
        **shown_walls(document),
    )


async def _external(engine: Engine, run: Run) -> api.External | None:
    """Return how an attempt stands that another system does."""
    if run.pool != EXTERNAL_POOL:
        return None
    found = await engine.store.external_attempt(run.id, run.attempt)
    if found is None:
        return None
    told = tuple(fill(api.Announcement, each, what=each.kind) for each in found.told)
    return fill(api.External, found, report_due_at=found.silent_at, told=told)


def _titles(document: Mapping[str, Any]) -> Titles:
    """Return the titles of steps of a job, by the names that workers know them by."""
    return {
        step.get("name", f"step {number}"): step["title"]
        for number, step in enumerate(document.get("steps", ()), 1)
        if "title" in step
    }


async def run_page(engine: Engine, query: RunQuery, limit: int) -> Page[api.Run]:
    """Return a page of runs; a query by state goes by the states that people see."""
    found = await see_runs(engine, replace(query, limit=limit + 1))
    notes = await _notes(engine, found)
    return page(
        found,
        limit,
        lambda run: seen_answer(run, notes.get(run.id)),
        lambda run: encode_cursor("runs", run.seq),
    )


async def _notes(engine: Engine, runs: Sequence[Run]) -> Mapping[RunId, Note]:
    """Return what workers told of those of these runs that they have."""
    going = [run.id for run in runs if run.state in LEASED_STATES]
    return await engine.store.notes(going) if going else {}


def seen_answer(seen: Run, note: Note | None = None) -> api.Run:
    """Build the answer of a run in the state that people see."""
    return fill(api.Run, seen, **_worked_out(seen, note))


def _worked_out(run: Run, note: Note | None) -> dict[str, Any]:
    """Compute the fields of an answer that a run does not have itself."""
    return {
        "reasons": tuple(fill(api.Reason, reason) for reason in run.reasons),
        "waiting": in_short(run),
        "duration_seconds": _seconds(run.started_at, run.ended_at),
        "progress": None if run.progress is None else api.Progress(**run.progress),
        "note": None if note is None else _note_answer(note),
        "url": link_to(f"/runs/{run.id}"),
    }


def _note_answer(note: Note) -> api.Note:
    number = note.current
    step = None if number is None else note.step(number)
    return fill(
        api.Note,
        note,
        step=step.name if step else "",
        step_number=number,
        step_started_at=step.started_at if step else None,
    )


def attempt_answer(
    attempt: Attempt, note: Note | None = None, titles: Titles = _NO_TITLES
) -> api.Attempt:
    """Build the answer of an attempt; one that goes on is known by the note of its worker."""
    steps, output = attempt.steps, attempt.output
    if note is not None and attempt.result is None and note.attempt == attempt.number:
        steps = note.steps
        output = OutputSummary(OutputState.PENDING, note.output_bytes, note.output_lines)
    return fill(
        api.Attempt,
        attempt,
        duration_seconds=_seconds(attempt.started_at, attempt.ended_at),
        steps=tuple(step_answer(step, titles) for step in steps),
        cpu_seconds=attempt.usage.cpu_seconds,
        max_memory_bytes=attempt.usage.max_memory_bytes,
        output=fill(api.OutputSummary, output),
    )


def step_answer(step: StepReport, titles: Titles = _NO_TITLES) -> api.Step:
    return fill(api.Step, step, title=titles.get(step.name, ""))


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def why_answer(explanation: Explanation) -> Why:
    run, order = explanation.run, explanation.order
    is_queued = run.state is RunState.QUEUED
    return fill(
        Why,
        explanation,
        run=run.id,
        job=run.job,
        state=run.state,
        reasons=tuple(map(_obstacle_answer, explanation.obstacles)),
        position=order.position if order and is_queued else None,
        order=None if order is None else _order_answer(order),
        not_reasons=tuple(fill(NotReason, each) for each in explanation.not_reasons),
    )


def _obstacle_answer(obstacle: why.Obstacle) -> Obstacle:
    return fill(
        Obstacle,
        obstacle.reason,
        holders=tuple(fill(Holder, holder) for holder in obstacle.holders),
        before=obstacle.before,
        waiting=obstacle.waiting,
        next_at=obstacle.next_at,
    )


def _order_answer(order: why.OrderOfService) -> OrderOfService:
    kept = order.reservation
    return fill(OrderOfService, order, reservation=None if kept is None else fill(Reserved, kept))


@job_router.get("/jobs/{job}/runs")
async def list_history(
    caller: Viewer, engine: UsedEngine, job: PastJob, limit: Limit = 100, cursor: Cursor = None
) -> Page[api.Run]:
    """The runs of a job, newest first; also of one that was deleted."""
    before = decode_cursor("runs", cursor, MAX_INTEGER)
    query = RunQuery(project=job.project, job_id=job.id, before_seq=before)
    return await run_page(engine, query, limit)


@job_router.post("/jobs/{job}/runs", status_code=202, responses={200: {"model": api.Run}})
async def trigger_run(
    actor: Operator,
    engine: UsedEngine,
    job: NamedJob,
    response: Response,
    body: TriggerBody | None = None,
    idempotency_key: IdempotencyKey = "",
) -> api.Run:
    """Make a run of a job, now or at a time; 200 if the idempotency key was seen before."""
    options = await _trigger_options(engine, job, body or TriggerBody(), idempotency_key)
    run, is_repeat = await runs.trigger(engine, job, options, actor=actor.name)
    response.headers["Location"] = link_to(f"{API}/runs/{run.id}", run.project)
    if is_repeat:
        response.status_code = 200
    return await run_answer(engine, run)


async def _trigger_options(
    engine: Engine, job: Job, body: TriggerBody, idempotency_key: str = ""
) -> runs.TriggerOptions:
    at, said = None, ""
    if body.at is not None:  # most runs are for now, and then nobody looks at the clock
        reading = looking_ahead(await engine.store.now(), zone_of(job))
        [at] = read_times(reading, {"at": body.at})
        said = times_as_written(body.at)
    return runs.TriggerOptions(body.inputs, at, body.priority, idempotency_key, said)


@job_router.post("/jobs/{job}/runs:plan")
async def plan_run(
    actor: Operator, engine: UsedEngine, job: NamedJob, body: TriggerBody | None = None
) -> api.PlannedRun:
    """The run that a trigger would make, or why it would make none; makes nothing."""
    options = await _trigger_options(engine, job, body or TriggerBody())
    inputs = await runs.require_triggerable(engine, job, options)
    default = engine.specs.of(job).priority
    return api.PlannedRun(
        job=job.name,
        inputs=inputs or None,
        at=options.at,
        priority=default if options.priority is None else options.priority,
    )


@job_router.post("/jobs/{job}/runs:batch", status_code=202, responses={200: {"model": api.Batch}})
async def trigger_runs(
    actor: Operator,
    engine: UsedEngine,
    job: NamedJob,
    response: Response,
    body: BatchBody,
    idempotency_key: IdempotencyKey = "",
) -> api.Batch:
    """Make one run of a job for each set of inputs, all or none."""
    ids, is_repeat = await trigger_batch(
        engine, job, body.inputs, actor=actor.name, idempotency_key=idempotency_key
    )
    if is_repeat:
        response.status_code = 200
    return api.Batch(runs=tuple(ids))


@router.get("/runs")
async def list_runs(
    project: Listed,
    caller: Asking,
    engine: UsedEngine,
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
    created_by: CreatedBy = None,
    timezone: ZoneQuery = "UTC",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Run]:
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
    reading = looking_back(await engine.store.now(), zone_given(timezone))
    wanted = parse_filter(where, terms, reading)
    before = decode_cursor("runs", cursor, MAX_INTEGER)
    creator = creator_meant(caller, project, created_by)
    if wanted.states is not None and not wanted.states:
        return Page(items=())
    if wanted.cart is not None:
        cart_named = await find_cart(engine, wanted.cart, project=project)
        project, wanted = cart_named.project, replace(wanted, cart=cart_named.id)
    query = replace(_query(project, wanted, before), created_by=creator)
    return await run_page(engine, query, limit)


def _query(project: ProjectSet, wanted: RunFilter, before: int) -> RunQuery:
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
    )


@router.get("/runs/{run}")
async def show_run(caller: Viewer, engine: UsedEngine, run: NamedRun) -> api.RunDetail:
    """A run with its attempts."""
    return await run_detail(engine, run)


@router.get("/runs/{run}/why")
async def explain_run(caller: Viewer, engine: UsedEngine, run: NamedRun) -> Why:
    """Where a run stands and what would move it on.

    Of other projects it tells how much of theirs goes first, and until when a worker is kept free.
    """
    return why_answer(await why.why(engine, run, await sight_of(engine, caller.projects)))


@router.get("/runs/{run}/events")
async def list_run_events(
    caller: Viewer,
    engine: UsedEngine,
    settings: Settings,
    run: NamedRun,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Event]:
    """Events of a run, in order."""
    one = One(run.id, run.project, run.job)
    return await event_page(engine, settings, one, cursor=cursor, limit=limit)


@router.post("/runs/{run}:cancel")
async def cancel_run(actor: Stopper, engine: UsedEngine, run: NamedRun) -> api.Run:
    """Cancel a run that waits, or ask one that is live to stop."""
    return await run_answer(engine, await runs.cancel(engine, run, actor=actor.name))


@router.post("/runs/{run}:retry", status_code=202)
async def retry_run(
    actor: Operator, engine: UsedEngine, run: NamedRun, response: Response
) -> api.Run:
    """A new run like one that has ended, with the same inputs."""
    new = await runs.retry(engine, run, actor=actor.name)
    response.headers["Location"] = link_to(f"{API}/runs/{new.id}", new.project)
    return await run_answer(engine, new)


@router.post("/runs/{run}:resolve")
async def resolve_run(
    actor: Resolver, engine: UsedEngine, run: NamedRun, body: ResolveBody
) -> api.Run:
    """Say what became of an UNKNOWN run."""
    state = _RESOLUTIONS[body.outcome]
    resolved = await runs.resolve(engine, run, state, actor=actor.name)
    return await run_answer(engine, resolved)


@router.patch("/runs/{run}")
async def report_run(
    actor: Reporter,
    engine: UsedEngine,
    project: Project,
    run: Annotated[str, Path(pattern=NAME, description="id, or a beginning only it has")],
    body: ReportBody,
) -> api.Reported:
    """Report how a run of type `external` stands, for the system that does its work.

    By the token of its attempt, with a number that grows from report to report; or by an operator.
    """
    named = await external.reported_run(engine, actor, run, project=project)
    said = external.said_by(actor, body.as_report())
    return reported_answer(said, await external.report(engine, named, said, actor=actor.name))


def reported_answer(said: StatusReport, taken: ReportTaken) -> api.Reported:
    """Build the answer to a report: the same for the same one, whatever has become of the run."""
    attempt = taken.attempt if said.attempt is None else said.attempt
    return api.Reported(run=taken.run, attempt=attempt, number=said.number, state=said.state)


@router.post("/runs/{run}:hold")
async def hold_run(actor: Stopper, engine: UsedEngine, run: NamedRun) -> api.Run:
    """Keep a run that waits from starting until it is released."""
    return await run_answer(engine, await hold(engine, run, actor=actor.name))


@router.post("/runs/{run}:release")
async def release_run(actor: Operator, engine: UsedEngine, run: NamedRun) -> api.Run:
    """End a hold: the run waits again like any other."""
    return await run_answer(engine, await let_go(engine, run, actor=actor.name))


@router.post("/runs/{run}:reprioritise")
async def reprioritise_run(
    actor: Operator, engine: UsedEngine, run: NamedRun, body: PriorityBody
) -> api.Run:
    """Give a run that waits another priority."""
    moved = await set_priority(engine, run, body.priority, actor=actor.name)
    return await run_answer(engine, moved)
