"""Program of a forecast: the runs of the time ahead, made from the store's data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, pairwise, takewhile
from math import inf
from operator import attrgetter

from rota.domain.calendars import compile_calendar
from rota.domain.carts.facts import MOST_IN_FLIGHT, CartState
from rota.domain.errors import Invalid
from rota.domain.forecast.ahead import JobAhead, RunAhead, Setting
from rota.domain.forecast.expansion import (
    CartAhead,
    Coming,
    DueRun,
    DueSeries,
    Expanded,
    Following,
    Sequels,
    drop_overlapping,
    expand,
    first_items,
    split_released,
)
from rota.domain.forecast.placing import Program
from rota.domain.gates import AFTER, ClosableJob, Gate, after_key, opens_at
from rota.domain.ids import JobId, instant, micros
from rota.domain.job import RunRules
from rota.domain.jobfile.build import build_schedule
from rota.domain.keys import KeyKind, kind_of
from rota.domain.run import Trigger
from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.spec import Late, Overlap, When
from rota.domain.states import RunState
from rota.operations.forecast_inputs import Inputs, JobsAhead
from rota.ports.forecasts import ComingJob, OpenCart, OpenRun

_HELD_BY_SOMEBODY = (f"{Gate.HOLD}:", f"{Gate.CART}:")  # not let go by time or room alone
_NOBODY = "(unknown)"  # the worker of a run for which none answers


def waiting_runs(
    inputs: Inputs, jobs: JobsAhead
) -> tuple[list[RunAhead], dict[JobId, list[DueRun]]]:
    """Return runs that have no worker yet, as far as they go on by themselves.

    Apart from them, by job, those that others have to complete for. All are by age, as in chains.
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
    """Split live runs into those at workers that go on, and those at others."""
    workers = {worker.name for worker in jobs.workers}
    going: list[RunAhead] = []
    outside: list[RunAhead] = []
    for run in inputs.runs:
        if run.state is RunState.UNKNOWN:
            outside.append(_unknown_run(run, jobs))
        elif run.began_at is not None:
            lot = going if run.session in workers else outside
            lot.append(_taken(run, run.began_at, inputs, jobs))
    going.sort(key=attrgetter("end_at"))  # whoever waits for one of a job waits for the first end
    return going, outside


def _is_stuck(run: OpenRun) -> bool:
    """Return whether a person has to act before the run goes on."""
    return (
        run.state is RunState.UNKNOWN
        or run.blocked_on.startswith(_HELD_BY_SOMEBODY)
        or (run.state is RunState.BLOCKED and not _opens(run))
    )


def _opens(run: OpenRun) -> bool:
    """Return whether the gates that close its whole job open by themselves, or are open."""
    return run.closable is None or opens_at(run.closable, run.release_at) is not None


def _comes_after(run: OpenRun, jobs: JobsAhead) -> bool:
    """Return whether other jobs have to complete before the run goes on, or had to."""
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
        ready_at=_open_from(run, job, max(inputs.seconds_to(_ready_at(run)), 0.0)),
        seconds=job.durations.usual,
        made_at=inputs.seconds_to(run.created_at),
        id=run.id,
        drop_at=_drop_at(run, inputs, jobs),
    )


def _drop_at(run: OpenRun, inputs: Inputs, jobs: JobsAhead) -> float:
    """Return from when on a waiting run may not start any more."""
    rules = jobs.rules.get(run.job_id)
    if rules is None or rules.start_within is None or not rules.drops_late(run.trigger):
        return inf
    return inputs.seconds_to(run.release_at) + rules.start_within.total_seconds()


def _open_from(run: OpenRun, job: JobAhead, ready_at: float) -> float:
    """Return when it passes the gates that close its whole job; what is queued has passed them."""
    return ready_at if run.state is RunState.QUEUED else job.open_from(ready_at)


def _ready_at(run: OpenRun) -> datetime:
    """Return when its time comes; for a run that waits for a key, the key decides."""
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
    """Return how long a run that has begun may still go on."""
    timeout = inf if run.timeout is None else run.timeout - elapsed
    deadline = inf if run.deadline_at is None else inputs.seconds_to(run.deadline_at)
    return max(min(timeout, deadline), 0.0)


def _unknown_run(run: OpenRun, jobs: JobsAhead) -> RunAhead:
    """Return an UNKNOWN run as one that blocks others until somebody resolves it."""
    keys = {key: n for key, n in run.keys.items() if kind_of(key) is KeyKind.EXCLUSIVE}
    return RunAhead(jobs.of_run(replace(run, keys=keys)), 0.0, 0.0, inf, 0.0, worker=_NOBODY)


MOST_STARTS = 200_000
_MICROSECOND = timedelta(microseconds=1)
_MICROS = 1_000_000
_NOT_BY_TIME = datetime.max.replace(tzinfo=UTC)  # before it the run that it waits for must end


@dataclass(frozen=True, slots=True)
class Scheduled:
    runs: list[RunAhead]
    due: dict[JobId, list[DueRun]]  # of all jobs that come after others, even if there are none
    is_cut: bool  # there are more than these


def coming_schedules(inputs: Inputs) -> dict[JobId, Coming]:
    """Return the schedules of the jobs that come by themselves."""
    return {job.id: found for job in inputs.jobs if (found := _coming(job, inputs))}


def scheduled_runs(inputs: Inputs, jobs: JobsAhead, schedules: Mapping[JobId, Coming]) -> Scheduled:
    """Return the runs that schedules will make, with those of jobs that follow others apart."""
    known, now = {job.id: job for job in inputs.jobs}, micros(inputs.now)
    runs: list[RunAhead] = []
    due: dict[JobId, list[DueRun]] = {}
    is_cut = False
    for job, coming in schedules.items():
        expanded = _opened(jobs.scheduled[job], expand(coming, inputs.until), now)
        is_cut |= expanded.is_cut
        rules = jobs.rules[job]
        if jobs.upstreams(job):
            made = _as_they_come(jobs.scheduled[job], expanded, now)
            _bound_waits(made, rules)
            since = _dues_before(known[job], coming, expanded)
            due[job] = _due_runs(made, since, jobs.rules[job].after_within, now)
        else:
            made = _runs(jobs.scheduled[job], expanded, rules.overlap, now)
            _bound_waits(made, rules)
            runs += [run for run in made if run.drop_at > run.ready_at]
    return _first_of(Scheduled(runs, due, is_cut))


def _opened(job: JobAhead, expanded: Expanded, now: int) -> Expanded:
    """Put off starts while a gate closes the whole job."""
    if job.opening is None:
        return expanded
    comes = [max((at - now) / _MICROS, 0.0) for at in expanded.ready]
    return replace(expanded, ready=[now + round(job.open_from(at) * _MICROS) for at in comes])


def _bound_waits(runs: Iterable[RunAhead], rules: RunRules) -> None:
    """Note until when runs may start at all."""
    if rules.late is not Late.DROP or rules.start_within is None:
        return
    within = rules.start_within.total_seconds()
    for run in runs:
        released_at = run.ready_at if run.ready_at > 0 else min(run.due_at, 0.0)
        run.drop_at = released_at + within


def _first_of(found: Scheduled) -> Scheduled:
    """Cut the runs to as many as are looked at."""
    waiting = [each.run for runs in found.due.values() for each in runs]
    if len(found.runs) + len(waiting) <= MOST_STARTS:
        return found
    times = sorted(run.ready_at for run in chain(found.runs, waiting))
    last = times[MOST_STARTS - 1]
    runs = [run for run in found.runs if run.ready_at <= last]
    due = {
        job: [each for each in runs if each.run.ready_at <= last] for job, runs in found.due.items()
    }
    return Scheduled(runs, due, is_cut=True)


def _coming(job: ComingJob, inputs: Inputs) -> Coming | None:
    """Return when a job comes by itself; None: it does not, or this release cannot read it."""
    if "schedule" not in job.document or _is_closed(job, inputs.now):
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


def _is_closed(job: ComingJob, now: datetime) -> bool:
    """Return whether a person has to act before anything of the job starts."""
    return opens_at(ClosableJob(job.id, job.rules, bounds=job.bounds), now) is None


def _cursor(job: ComingJob, table: Timetable, now: datetime) -> datetime | None:
    """Return the first due time to come. Of overdue ones it is the last, as misfires usually go;
    those inside a pause are not caught up.
    """
    if job.next_at is not None:
        overdue = job.next_at < now and not table.after_previous
        return (table.last_at_or_before(now) if overdue else None) or job.next_at
    if job.waits:
        return _NOT_BY_TIME
    if job.held_from is None or job.paused_until is None:
        return None
    return table.next_after(max(job.paused_until, job.held_from - _MICROSECOND))


def _runs(job: JobAhead, expanded: Expanded, overlap: Overlap, now: int) -> list[RunAhead]:
    usual = job.durations.usual
    runs = _as_they_come(job, drop_overlapping(expanded, overlap, usual), now)
    if overlap is Overlap.CANCEL_PREVIOUS:
        for run, following in pairwise(runs):
            run.seconds = min(usual, following.ready_at - run.ready_at)
    return runs


def _due_runs(
    runs: Sequence[RunAhead], since: Iterable[int], within: timedelta | None, now: int
) -> list[DueRun]:
    longest = inf if within is None else within.total_seconds()
    return [
        DueRun(run, (at - now) / _MICROS, run.ready_at + longest)
        for run, at in zip(runs, since, strict=True)
    ]


def _dues_before(job: ComingJob, coming: Coming, expanded: Expanded) -> Iterator[int]:
    """Yield the due time before each; those that calendars ruled out have their answer, too."""
    before = micros(max(job.answered_to or job.created_at, job.created_at))
    is_overdue = job.next_at is not None and job.next_at < coming.cursor
    for due in expanded.due:
        if coming.blackouts or is_overdue:
            last = coming.table.last_at_or_before(instant(due) - _MICROSECOND)
            before = max(before, micros(last)) if last else before
        yield before
        before, is_overdue = due, False


def _as_they_come(job: JobAhead, expanded: Expanded, now: int) -> list[RunAhead]:
    usual = job.durations.usual
    due = [(at - now) / _MICROS for at in expanded.due]
    ready = due
    if expanded.ready is not expanded.due:
        ready = [(at - now) / _MICROS for at in expanded.ready]
    runs = [RunAhead(job, *times, usual) for times in zip(due, ready, strict=True)]
    for run in takewhile(lambda run: run.ready_at < 0, runs):
        run.ready_at = 0.0
    return runs


def due_series(
    inputs: Inputs,
    jobs: JobsAhead,
    waiting: Mapping[JobId, Sequence[DueRun]],
    coming: Mapping[JobId, Sequence[DueRun]],
) -> dict[JobId, DueSeries]:
    """Collect the due runs of all jobs that follow others, both waiting and coming."""
    completed = {after_key(*job): inputs.seconds_to(at) for job, at in inputs.completions.items()}
    return {
        job: _line(jobs, job, [*waiting.get(job, ()), *coming.get(job, ())], completed)
        for job in {**waiting, **coming}
    }


def _line(
    jobs: JobsAhead, job: JobId, runs: list[DueRun], completed: Mapping[str, float]
) -> DueSeries:
    rules, upstreams = jobs.rules.get(job), jobs.upstreams(job)
    within = rules.after_within if rules else None
    return DueSeries(
        upstreams=upstreams,
        overlap=rules.overlap if rules else Overlap.ALLOW,
        runs=sorted(runs, key=lambda due: due.since),
        completed={key: completed[key] for key in upstreams if key in completed},
        within=inf if within is None else within.total_seconds(),
    )


@dataclass(frozen=True, slots=True)
class Assembled:
    program: Program
    setting: Setting
    tables: dict[JobId, Timetable]  # of the jobs that have one
    is_cut: bool  # there is more than can be looked at


def assemble(inputs: Inputs) -> Assembled:
    """Assemble the program and its setting. Takes a while where there are many jobs."""
    jobs = JobsAhead(inputs)
    schedules = coming_schedules(inputs)
    carts = {cart.id: _cart(cart, jobs) for cart in inputs.carts}
    scheduled = scheduled_runs(inputs, jobs, schedules)
    waiting, due = waiting_runs(inputs, jobs)
    released, series = _split_released(due_series(inputs, jobs, due, scheduled.due))
    coming = [*scheduled.runs, *waiting, *released]
    for cart in inputs.carts:
        if not cart.open and (opens_at := _opening(cart, inputs)) is not None:
            coming += first_items(carts[cart.id], opens_at)
    coming.sort(key=attrgetter("ready_at"))
    sequels = replace(_sequels(inputs, jobs, schedules), due_series=series, carts=[*carts.values()])
    followed = partial(Following, sequels) if sequels.are_any else None
    going, outside = taken_runs(inputs, jobs)
    kinds = {run.job for run in (*going, *outside, *coming)}
    kinds |= {job for found in sequels.followers.values() for job in found}
    kinds |= {due.run.job for each in series.values() for due in each.runs}
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
    """Return when a cart without open items goes on; None: not by itself."""
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
            if job.rules.follow(upstream).when is When.FAILED:
                continue  # runs to come are taken to complete
            if (found := jobs.id_of(job.project, upstream)) is not None:
                followers[found].append(jobs.scheduled[job.id])
    return Sequels(again, followers)


def _due_again(table: Timetable, inputs: Inputs, ended: float) -> float | None:
    due = table.after_completion(inputs.now + timedelta(seconds=ended))
    return None if due is None else inputs.seconds_to(table.release_at(due))


def _split_released(
    series: Mapping[JobId, DueSeries],
) -> tuple[list[RunAhead], dict[JobId, DueSeries]]:
    """Split off the runs that wait for no upstream."""
    left = {job: split_released(each) for job, each in series.items()}
    return [run for runs, _ in left.values() for run in runs], {
        j: it for j, (_, it) in left.items()
    }


def _links(inputs: Inputs) -> set[tuple[str, str]]:
    """Return pairs of pools where runs of one follow runs of the other."""
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
