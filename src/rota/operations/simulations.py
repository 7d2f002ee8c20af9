"""Simulations: the time ahead as it looks now, and as it would look after a change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from rota.domain.errors import Conflict, Invalid, Problem
from rota.domain.forecast.ahead import JOB_GATE, WORKER_GATE, RunAhead
from rota.domain.forecast.forecast import Forecast
from rota.domain.forecast.load import real
from rota.domain.ids import SessionId
from rota.domain.job import Job, rules_of
from rota.domain.jobfile import read_job
from rota.domain.keys import Resource
from rota.domain.schedule import compile_schedule
from rota.domain.simulation.model import SimRun
from rota.domain.simulation.report import Background, Known, Measures, Report, replay, report_of
from rota.domain.spec import EXTERNAL_POOL
from rota.operations.definitions import find_job
from rota.operations.engine import Engine
from rota.operations.forecast_inputs import Inputs, read_inputs
from rota.operations.forecasts import forecast_from, run_in_thread
from rota.operations.tenants import EVERYTHING, OTHERS, Sight, seen_report, seen_shortage
from rota.ports.forecasts import ComingJob
from rota.ports.records import Session

LONGEST = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Change:
    """Hypothetical change to simulate."""

    add_workers: Mapping[str, int] = field(default_factory=dict)  # how many, by pool
    moves: Mapping[str, str] = field(default_factory=dict)  # the schedule instead, by job
    without: Collection[str] = ()  # jobs


@dataclass(frozen=True, slots=True)
class Comparison:
    before: Report
    after: Report


async def simulate_change(
    engine: Engine, project: str, change: Change, ahead: timedelta, sight: Sight = EVERYTHING
) -> Comparison:
    """Look ahead without and with a change; write nothing and take no lock."""
    if not timedelta(0) < ahead <= LONGEST:
        problem = Problem("must be more than 0s, and at most 7 days", "for")
        raise Invalid("a simulation cannot look there", [problem])
    until = await engine.store.now() + ahead
    inputs = await read_inputs(engine, until)
    models = [each for each in inputs.sessions if sight.sees_pool(each.pool)]
    changed = await _changed(engine, project, inputs, change, models)
    return await run_in_thread(_compare, inputs, changed, project, sight)


async def _changed(
    engine: Engine, project: str, inputs: Inputs, change: Change, models: Sequence[Session]
) -> Inputs:
    gone = {(await find_job(engine, name, project=project)).id for name in change.without}
    moved = [
        _moved(await find_job(engine, name, project=project), expression, inputs)
        for name, expression in change.moves.items()
    ]
    left = gone | {job.id for job in moved}
    return replace(
        inputs,
        jobs=[*(job for job in inputs.jobs if job.id not in left), *moved],
        runs=[run for run in inputs.runs if run.job_id not in gone or run.began_at is not None],
        sessions=[*inputs.sessions, *_added(models, change.add_workers)],
    )


def _moved(job: Job, expression: str, inputs: Inputs) -> ComingJob:
    """Return the job with another schedule from now on, even if it is held at present."""
    document = {**job.document, "schedule": expression}
    spec = read_job(document)
    assert spec.schedule is not None
    table = compile_schedule(spec.schedule, key=f"{job.project}/{job.name}", anchor=inputs.now)
    shared = {
        each.name
        for each in inputs.declarations
        if isinstance(each, Resource) and each.project == job.project
    }
    return ComingJob(
        id=job.id,
        project=job.project,
        name=job.name,
        version=job.version,
        created_by=job.created_by,
        document=document,
        rules=rules_of(spec, shared),
        anchor=inputs.now,
        next_at=table.next_after(inputs.now),
        held_from=None,
        paused_until=None,
        waits=False,
        created_at=job.created_at,
        answered_to=inputs.now,
    )


def _added(models: Sequence[Session], wanted: Mapping[str, int]) -> Iterator[Session]:
    """Yield more workers like the first of their pool."""
    for pool, count in wanted.items():
        model = next((each for each in models if each.pool == pool), None)
        if model is None:
            raise Conflict(
                f"pool {pool} has no worker that another could be like",
                code="no_worker",
                hint="rota worker list shows which pools have workers",
            )
        for number in range(1, count + 1):
            name = f"(added {number}) {model.worker}"
            yield replace(model, id=SessionId(name), worker=name, held=0, draining=False)


def _compare(before: Inputs, after: Inputs, project: str, sight: Sight) -> Comparison:
    return Comparison(_report(before, project, sight), _report(after, project, sight))


def _report(inputs: Inputs, project: str, sight: Sight) -> Report:
    forecast = forecast_from(inputs)
    workers = real(forecast.setting.workers)
    measures = Measures(forecast.setting.workers, forecast.seconds)
    replay(_known_starts(forecast, project, sight), measures)
    pools = {each.pool for each in workers if sight.sees_pool(each.pool)}
    pools |= {run.job.pool for run in forecast.runs if sight.sees(run.job.project)}
    objectives = {job.name: job.rules.start_within for job in inputs.jobs if job.project == project}
    background = Background(
        workers=len(workers),
        weights=inputs.weights,
        start_within={k: each.total_seconds() for k, each in objectives.items() if each},
    )
    report = report_of(measures, background)
    uses = [use for use in report.uses if use.pool != EXTERNAL_POOL]  # which has no limit
    return seen_report(sight, replace(report, uses=uses), pools)


def _known_starts(forecast: Forecast, project: str, sight: Sight) -> Iterator[Known]:
    coming = (run for run in forecast.runs if run.ready_at < forecast.seconds)
    for number, run in enumerate(coming):
        is_key = run.waits_for not in ("", JOB_GATE, WORKER_GATE)
        key = seen_shortage(sight, run) if is_key else ""
        yield Known(_run(run, str(number), project), run.start_at, key)


def _run(run: RunAhead, number: str, project: str) -> SimRun:
    job, is_ours = run.job, run.job.project == project
    return SimRun(
        id=number,
        job=job.name if is_ours else OTHERS,
        arrives_at=min(run.ready_at, run.start_at),
        seconds=run.seconds,
        pool=job.pool,
        priority=job.priority,
        share=job.share if is_ours else OTHERS,
        shape=job.shape,
        drop_at=run.drop_at,
    )
