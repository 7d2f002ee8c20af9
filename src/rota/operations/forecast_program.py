"""The runs of the time ahead, made of what the store knows."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import TypeAlias

from rota.domain.calendars import compile_calendar
from rota.domain.carts.budget import MOST_IN_FLIGHT
from rota.domain.carts.states import CartState
from rota.domain.errors import Invalid
from rota.domain.forecast.ahead import JobAhead, RunAhead, Setting
from rota.domain.forecast.expansion import Coming, Expanded, expand, held_back, thinned
from rota.domain.forecast.placing import Program
from rota.domain.forecast.successors import CartAhead, Following, Sequels, first_items
from rota.domain.ids import JobId, micros
from rota.domain.jobfile.build import build_schedule
from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.operations.forecast_inputs import Inputs
from rota.operations.forecast_jobs import JobsAhead
from rota.ports.forecasts import ComingJob, OpenCart, OpenRun

MOST_STARTS = 200_000
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_NOT_BY_TIME = datetime.max.replace(tzinfo=UTC)  # before it the run that it waits for must end
_MICROS = 1_000_000
_AFTER = "after:"  # the key of runs that wait for another job
_HELD_BY_SOMEBODY = ("hold:", "cart:")  # not let go by time or room alone


Held: TypeAlias = dict[JobId, list[RunAhead]]  # by the job that has to complete first


@dataclass(frozen=True, slots=True)
class Assembled:
    program: Program
    setting: Setting
    tables: dict[JobId, Timetable]  # of the jobs that have one
    is_cut: bool  # there is more than can be looked at


def assemble(inputs: Inputs) -> Assembled:
    """What is to be placed, and on what. Takes a while where there are many jobs."""
    jobs = JobsAhead(inputs)
    schedules = {job.id: found for job in inputs.jobs if (found := _coming(job, inputs))}
    carts = {cart.id: _cart(cart, jobs) for cart in inputs.carts}
    coming, is_cut = _scheduled(inputs, jobs, schedules)
    waiting, held = _waiting(inputs, jobs)
    coming += waiting
    for cart in inputs.carts:
        if not cart.open and (opens_at := _opening(cart, inputs.now)) is not None:
            coming += first_items(carts[cart.id], opens_at)
    coming.sort(key=attrgetter("ready_at"))
    sequels = replace(_sequels(inputs, jobs, schedules), held=held, carts=[*carts.values()])
    followed = partial(Following, sequels) if sequels.are_any else None
    going = [*_going(inputs, jobs)]
    kinds = {run.job for run in (*going, *coming)}
    kinds |= {job for found in sequels.followers.values() for job in found}
    kinds |= {run.job for found in held.values() for run in found}
    return Assembled(
        program=Program(going, coming, followed, _links(jobs, sequels)),
        setting=jobs.setting(kinds),
        tables={job: each.table for job, each in schedules.items()},
        is_cut=is_cut or inputs.is_cut,
    )


def _coming(job: ComingJob, inputs: Inputs) -> Coming | None:
    """When a job comes by itself; None: it does not, or this release cannot read it."""
    if "schedule" not in job.document:
        return None
    try:
        # What is stored was checked when it was saved: to do so again takes most of the time.
        schedule = build_schedule(job.document)
        table = compile_schedule(schedule, key=f"{job.project}/{job.name}", anchor=job.anchor)
        calendars = [inputs.calendars[job.project, name] for name in schedule.calendars]
        blackouts = tuple(map(compile_calendar, calendars))
    except (Invalid, KeyError, ValueError, TypeError):
        return None
    cursor = _cursor(job, table, inputs.now)
    return Coming(table, cursor, blackouts) if cursor else None


def _cursor(job: ComingJob, table: Timetable, now: datetime) -> datetime | None:
    """The first due time to come. Of those that are overdue the last is, as misfires usually go;
    those inside a pause are not caught up."""
    if job.next_at is not None:
        overdue = job.next_at < now and not table.after_previous
        return (table.last_at_or_before(now) if overdue else None) or job.next_at
    if job.waits:
        return _NOT_BY_TIME
    if job.held_from is None or job.paused_until is None:
        return None
    return table.next_after(max(job.paused_until, job.held_from - _MICROSECOND))


def _scheduled(
    inputs: Inputs, jobs: JobsAhead, schedules: Mapping[JobId, Coming]
) -> tuple[list[RunAhead], bool]:
    """The runs that schedules will make, and whether there are more than these."""
    found = _expanded(inputs, jobs, schedules)
    now = micros(inputs.now)
    made = [
        run
        for job, each in found.items()
        for run in _runs(jobs.scheduled[job], each, jobs.rules[job].overlap, now)
    ]
    is_cut = any(each.is_cut for each in found.values())
    if len(made) > MOST_STARTS:
        made = heapq.nsmallest(MOST_STARTS, made, key=attrgetter("ready_at"))
        is_cut = True
    return made, is_cut


def _expanded(
    inputs: Inputs, jobs: JobsAhead, schedules: Mapping[JobId, Coming]
) -> dict[JobId, Expanded]:
    """The starts of all schedules, those of jobs that come after others last."""
    found: dict[JobId, Expanded] = {}
    for job in sorted(schedules, key=lambda job: len(jobs.rules[job].after)):
        rules, expanded = jobs.rules[job], expand(schedules[job], inputs.until)
        if rules.after:
            ids = (jobs.id_of(rules.project, name) for name in rules.after)
            upstreams = [each for each in ids if each in found]
            expanded = held_back(
                expanded,
                ((found[each].ready, jobs.scheduled[each].durations.usual) for each in upstreams),
            )
        usual = jobs.scheduled[job].durations.usual
        found[job] = thinned(expanded, rules.overlap, usual)
    return found


def _runs(job: JobAhead, expanded: Expanded, overlap: Overlap, now: int) -> list[RunAhead]:
    usual = job.durations.usual
    due = [(at - now) / _MICROS for at in expanded.due]
    ready = due
    if expanded.ready is not expanded.due:
        ready = [(at - now) / _MICROS for at in expanded.ready]
    runs = [RunAhead(job, *times, usual) for times in zip(due, ready, strict=True)]
    for run in takewhile(lambda run: run.ready_at < 0, runs):
        run.ready_at = 0.0
    if overlap is Overlap.CANCEL_PREVIOUS:
        for run, following in pairwise(runs):
            run.seconds = min(usual, following.ready_at - run.ready_at)
    return runs


def _waiting(inputs: Inputs, jobs: JobsAhead) -> tuple[list[RunAhead], Held]:
    """Runs that exist and have no worker yet, as far as they go on by themselves.

    Apart from them those that another job has to complete for.
    """
    free: list[RunAhead] = []
    held: Held = defaultdict(list)
    for run in inputs.runs:
        is_stuck = run.blocked_on.startswith(_HELD_BY_SOMEBODY) or (
            run.is_paused and run.state is RunState.BLOCKED
        )
        if run.began_at is not None or is_stuck:
            continue
        made = _run(run, jobs.of_run(run), inputs.now)
        if not run.blocked_on.startswith(_AFTER):
            free.append(made)
        elif upstream := jobs.id_of(*run.blocked_on.removeprefix(_AFTER).split("/", 1)):
            held[upstream].append(made)
    return free, held


def _run(run: OpenRun, job: JobAhead, now: datetime) -> RunAhead:
    ready = max(_seconds(_ready_at(run), now), 0.0)
    return RunAhead(job, _seconds(run.due_at, now), ready, job.durations.usual, id=run.id)


def _ready_at(run: OpenRun) -> datetime:
    """When its time comes; of what waits for a key, the key decides."""
    if run.state is RunState.SCHEDULED:
        return run.eligible_at or run.release_at
    return run.release_at


def _going(inputs: Inputs, jobs: JobsAhead) -> Iterator[RunAhead]:
    """Runs that a worker has, of those workers that go on."""
    workers = {worker.name for worker in jobs.workers}
    for run in inputs.runs:
        if run.began_at is not None and run.session in workers:
            job = jobs.of_run(run)
            began = min(_seconds(run.began_at, inputs.now), 0.0)
            seconds = job.durations.left_after(-began) - began
            due = _seconds(run.due_at, inputs.now)
            yield RunAhead(job, due, began, seconds, began, id=run.id, worker=run.session)


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


def _opening(cart: OpenCart, now: datetime) -> float | None:
    """When a cart without open items goes on; None: not by itself."""
    at = cart.starts_at if cart.state is CartState.PLANNED else cart.look_at
    if at is None:
        return 0.0 if cart.state is not CartState.WAITING else None
    return max(_seconds(at, now), 0.0)


def _sequels(inputs: Inputs, jobs: JobsAhead, schedules: Mapping[JobId, Coming]) -> Sequels:
    again = {
        job: partial(_due_again, coming.table, inputs.now)
        for job, coming in schedules.items()
        if coming.table.after_previous and not coming.table.run_once
    }
    followers: dict[JobId, list[JobAhead]] = defaultdict(list)
    for job in inputs.jobs:
        for upstream in () if job.rules.is_scheduled else job.rules.after:
            if (found := jobs.id_of(job.project, upstream)) is not None:
                followers[found].append(jobs.scheduled[job.id])
    return Sequels(again, followers)


def _due_again(table: Timetable, now: datetime, ended: float) -> float | None:
    due = table.after_completion(now + timedelta(seconds=ended))
    return None if due is None else _seconds(table.release_at(due), now)


def _links(jobs: JobsAhead, sequels: Sequels) -> set[tuple[str, str]]:
    """Pools of jobs that come after jobs of another pool."""
    later: dict[JobId, set[str]] = defaultdict(set)
    for upstream, followers in sequels.followers.items():
        later[upstream] |= {job.pool for job in followers}
    for upstream, runs in sequels.held.items():
        later[upstream] |= {run.job.pool for run in runs}
    return {
        (jobs.scheduled[upstream].pool, pool)
        for upstream, pools in later.items()
        if upstream in jobs.scheduled
        for pool in pools - {jobs.scheduled[upstream].pool}
    }


def _seconds(at: datetime, now: datetime) -> float:
    return (at - now) / _SECOND
