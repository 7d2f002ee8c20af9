"""Runs that exist already: those that wait, and those that have been taken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from math import inf
from operator import attrgetter

from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.due_lines import DueRun
from rota.domain.gates import AFTER
from rota.domain.ids import JobId
from rota.domain.run import Trigger
from rota.domain.shared_keys import KeyKind, kind_of
from rota.domain.states import RunState
from rota.operations.forecast_inputs import Inputs
from rota.operations.forecast_jobs import JobsAhead
from rota.ports.forecasts import OpenRun

_HELD_BY_SOMEBODY = ("hold:", "cart:")  # not let go by time or room alone
_NOBODY = "(unknown)"  # the worker of a run for which none answers


def waiting_runs(
    inputs: Inputs, jobs: JobsAhead
) -> tuple[list[RunAhead], dict[JobId, list[DueRun]]]:
    """Runs that have no worker yet, as far as they go on by themselves.

    Apart from them, by job, those that others have to complete for. All are by age, as lines are.
    """
    free: list[RunAhead] = []
    due: dict[JobId, list[DueRun]] = defaultdict(list)
    for run in inputs.runs:
        if run.began_at is not None or _is_stuck(run):
            continue
        if _comes_after(run, jobs):
            due[run.job_id].append(_due_run(run, inputs, jobs))
        else:
            free.append(_waiting(run, inputs, jobs))
    return free, due


def taken_runs(inputs: Inputs, jobs: JobsAhead) -> tuple[list[RunAhead], list[RunAhead]]:
    """Runs of the workers that go on, and those of others."""
    workers = {worker.name for worker in jobs.workers}
    going: list[RunAhead] = []
    outside: list[RunAhead] = []
    for run in inputs.runs:
        if run.state is RunState.UNKNOWN:
            outside.append(_doubtful(run, jobs))
        elif run.began_at is not None:
            lot = going if run.session in workers else outside
            lot.append(_taken(run, run.began_at, inputs, jobs))
    going.sort(key=attrgetter("end_at"))  # whoever waits for one of a job waits for the first end
    return going, outside


def _is_stuck(run: OpenRun) -> bool:
    """Whether somebody has to do something before it goes on."""
    return (
        run.state is RunState.UNKNOWN
        or run.blocked_on.startswith(_HELD_BY_SOMEBODY)
        or (run.is_paused and run.state is RunState.BLOCKED)
    )


def _comes_after(run: OpenRun, jobs: JobsAhead) -> bool:
    """Whether other jobs have to complete before it goes on, or had to."""
    is_to_look = run.state is RunState.SCHEDULED and run.trigger is Trigger.SCHEDULE
    return run.blocked_on.startswith(AFTER) or (is_to_look and bool(jobs.upstreams(run.job_id)))


def _due_run(run: OpenRun, inputs: Inputs, jobs: JobsAhead) -> DueRun:
    rules = jobs.rules.get(run.job_id)
    within = rules.after_within if rules else None
    made_at = jobs.made_at.get(run.job_id, run.created_at)
    return DueRun(
        run=_waiting(run, inputs, jobs),
        since=inputs.seconds_to(max(run.previous_due or made_at, made_at)),
        missed_at=inputs.seconds_to(run.release_at) + within.total_seconds() if within else inf,
    )


def _waiting(run: OpenRun, inputs: Inputs, jobs: JobsAhead) -> RunAhead:
    job = jobs.of_run(run)
    return RunAhead(
        job=job,
        due_at=inputs.seconds_to(run.due_at),
        ready_at=max(inputs.seconds_to(_ready_at(run)), 0.0),
        seconds=job.durations.usual,
        made_at=inputs.seconds_to(run.created_at),
        id=run.id,
    )


def _ready_at(run: OpenRun) -> datetime:
    """When its time comes; of what waits for a key, the key decides."""
    if run.state is RunState.SCHEDULED:
        return run.eligible_at or run.release_at
    return run.release_at


def _taken(run: OpenRun, began_at: datetime, inputs: Inputs, jobs: JobsAhead) -> RunAhead:
    job = jobs.of_run(run)
    began = min(inputs.seconds_to(began_at), 0.0)
    left = job.durations.left_after(-began, _most_left(run, -began, inputs))
    due = inputs.seconds_to(run.due_at)
    return RunAhead(job, due, began, left - began, began, id=run.id, worker=run.session or _NOBODY)


def _most_left(run: OpenRun, elapsed: float, inputs: Inputs) -> float:
    """How long a run that has begun may still go on."""
    timeout = inf if run.timeout is None else run.timeout - elapsed
    deadline = inf if run.deadline_at is None else inputs.seconds_to(run.deadline_at)
    return max(min(timeout, deadline), 0.0)


def _doubtful(run: OpenRun, jobs: JobsAhead) -> RunAhead:
    """A run of which nobody knows whether it goes on keeps others away until somebody decides."""
    keys = {key: n for key, n in run.keys.items() if kind_of(key) is KeyKind.EXCLUSIVE}
    return RunAhead(jobs.of_run(replace(run, keys=keys)), 0.0, 0.0, inf, 0.0, worker=_NOBODY)
