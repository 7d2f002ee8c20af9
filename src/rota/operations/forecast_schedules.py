"""The runs that schedules will make in the time ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise, takewhile
from math import inf

from rota.domain.calendars import compile_calendar
from rota.domain.errors import Invalid
from rota.domain.forecast.ahead import JobAhead, RunAhead
from rota.domain.forecast.due_lines import DueRun
from rota.domain.forecast.expansion import Coming, Expanded, expand, thinned
from rota.domain.ids import JobId, instant, micros
from rota.domain.jobfile.build import build_schedule
from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.spec import Overlap
from rota.operations.forecast_inputs import Inputs
from rota.operations.forecast_jobs import JobsAhead
from rota.ports.forecasts import ComingJob

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
    """Those of the jobs that come by themselves."""
    return {job.id: found for job in inputs.jobs if (found := _coming(job, inputs))}


def scheduled_runs(inputs: Inputs, jobs: JobsAhead, schedules: Mapping[JobId, Coming]) -> Scheduled:
    """The runs that schedules will make, those of jobs that come after others apart."""
    known, now = {job.id: job for job in inputs.jobs}, micros(inputs.now)
    runs: list[RunAhead] = []
    due: dict[JobId, list[DueRun]] = {}
    is_cut = False
    for job, coming in schedules.items():
        expanded = expand(coming, inputs.until)
        is_cut |= expanded.is_cut
        if jobs.upstreams(job):
            made = _as_they_come(jobs.scheduled[job], expanded, now)
            since = _dues_before(known[job], coming, expanded)
            due[job] = _due_runs(made, since, jobs.rules[job].after_within, now)
        else:
            runs += _runs(jobs.scheduled[job], expanded, jobs.rules[job].overlap, now)
    return _first_of(Scheduled(runs, due, is_cut))


def _first_of(found: Scheduled) -> Scheduled:
    """As many as are looked at."""
    waiting = [each.run for line in found.due.values() for each in line]
    if len(found.runs) + len(waiting) <= MOST_STARTS:
        return found
    times = sorted(run.ready_at for run in chain(found.runs, waiting))
    last = times[MOST_STARTS - 1]
    runs = [run for run in found.runs if run.ready_at <= last]
    due = {
        job: [each for each in line if each.run.ready_at <= last] for job, line in found.due.items()
    }
    return Scheduled(runs, due, is_cut=True)


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


def _runs(job: JobAhead, expanded: Expanded, overlap: Overlap, now: int) -> list[RunAhead]:
    usual = job.durations.usual
    runs = _as_they_come(job, thinned(expanded, overlap, usual), now)
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
    """The due time before each; those that calendars ruled out have their answer, too."""
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
