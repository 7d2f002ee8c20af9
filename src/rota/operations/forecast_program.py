"""The runs of the time ahead, made of what the store knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from operator import attrgetter

from rota.domain.carts.budget import MOST_IN_FLIGHT
from rota.domain.carts.states import CartState
from rota.domain.forecast.ahead import JobAhead, RunAhead, Setting
from rota.domain.forecast.due_lines import DueLine, let_go
from rota.domain.forecast.expansion import Coming
from rota.domain.forecast.placing import Program
from rota.domain.forecast.successors import CartAhead, Following, Sequels, first_items
from rota.domain.gates import after_key
from rota.domain.ids import JobId
from rota.domain.schedule import Timetable
from rota.operations.forecast_inputs import Inputs
from rota.operations.forecast_jobs import JobsAhead
from rota.operations.forecast_lines import due_lines
from rota.operations.forecast_runs import taken_runs, waiting_runs
from rota.operations.forecast_schedules import coming_schedules, scheduled_runs
from rota.ports.forecasts import OpenCart


@dataclass(frozen=True, slots=True)
class Assembled:
    program: Program
    setting: Setting
    tables: dict[JobId, Timetable]  # of the jobs that have one
    is_cut: bool  # there is more than can be looked at


def assemble(inputs: Inputs) -> Assembled:
    """What is to be placed, and on what. Takes a while where there are many jobs."""
    jobs = JobsAhead(inputs)
    schedules = coming_schedules(inputs)
    carts = {cart.id: _cart(cart, jobs) for cart in inputs.carts}
    scheduled = scheduled_runs(inputs, jobs, schedules)
    waiting, due = waiting_runs(inputs, jobs)
    released, lines = _lines(due_lines(inputs, jobs, due, scheduled.due))
    coming = [*scheduled.runs, *waiting, *released]
    for cart in inputs.carts:
        if not cart.open and (opens_at := _opening(cart, inputs)) is not None:
            coming += first_items(carts[cart.id], opens_at)
    coming.sort(key=attrgetter("ready_at"))
    sequels = replace(_sequels(inputs, jobs, schedules), lines=lines, carts=[*carts.values()])
    followed = partial(Following, sequels) if sequels.are_any else None
    going, outside = taken_runs(inputs, jobs)
    kinds = {run.job for run in (*going, *outside, *coming)}
    kinds |= {job for found in sequels.followers.values() for job in found}
    kinds |= {due.run.job for line in lines.values() for due in line.runs}
    return Assembled(
        program=Program(going, coming, followed, _links(inputs), outside),
        setting=jobs.setting(kinds),
        tables={job: each.table for job, each in schedules.items()},
        is_cut=scheduled.is_cut or inputs.is_cut,
    )


def _cart(cart: OpenCart, jobs: JobsAhead) -> CartAhead:
    between = cart.rules.between
    waves = cart.waves[:1] if between.approve else cart.waves  # nobody knows when people agree
    return CartAhead(
        id=cart.id,
        job=jobs.of_cart(cart),
        waves=waves,
        window=min(cart.rules.max_parallel or MOST_IN_FLIGHT, MOST_IN_FLIGHT),
        wait=between.wait.total_seconds(),
        open=cart.open,
    )


def _opening(cart: OpenCart, inputs: Inputs) -> float | None:
    """When a cart without open items goes on; None: not by itself."""
    at = cart.starts_at if cart.state is CartState.PLANNED else cart.look_at
    if at is None:
        return 0.0 if cart.state is not CartState.WAITING else None
    return max(inputs.seconds_to(at), 0.0)


def _sequels(inputs: Inputs, jobs: JobsAhead, schedules: Mapping[JobId, Coming]) -> Sequels:
    again = {
        job: partial(_due_again, coming.table, inputs)
        for job, coming in schedules.items()
        if coming.table.after_previous and not coming.table.run_once
    }
    followers: dict[JobId, list[JobAhead]] = defaultdict(list)
    for job in inputs.jobs:
        for upstream in () if job.rules.is_scheduled else job.rules.after:
            if (found := jobs.id_of(job.project, upstream)) is not None:
                followers[found].append(jobs.scheduled[job.id])
    return Sequels(again, followers)


def _due_again(table: Timetable, inputs: Inputs, ended: float) -> float | None:
    due = table.after_completion(inputs.now + timedelta(seconds=ended))
    return None if due is None else inputs.seconds_to(table.release_at(due))


def _lines(lines: Mapping[JobId, DueLine]) -> tuple[list[RunAhead], dict[JobId, DueLine]]:
    """Without the runs that wait for nobody."""
    left = {job: let_go(line) for job, line in lines.items()}
    return [run for runs, _ in left.values() for run in runs], {
        j: it for j, (_, it) in left.items()
    }


def _links(inputs: Inputs) -> set[tuple[str, str]]:
    """Pools in one of which runs come after those of the other."""
    pools: dict[str, set[str]] = defaultdict(set)  # of jobs, by the keys that others wait on
    for job in inputs.jobs:
        pools[after_key(job.project, job.name)].add(job.rules.pool)
    for run in inputs.runs:
        pools[after_key(run.project, run.job)].add(run.pool)
    later = {
        (after_key(job.project, upstream), job.rules.pool)
        for job in inputs.jobs
        for upstream in job.rules.after
    }
    later |= {(run.blocked_on, run.pool) for run in inputs.runs if run.blocked_on in pools}
    return {(pool, other) for key, other in later for pool in pools.get(key, ()) if pool != other}
