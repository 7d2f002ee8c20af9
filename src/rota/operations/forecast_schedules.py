"""The runs that schedules will make in the time ahead."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from operator import attrgetter

from rota.domain.calendars import compile_calendar
from rota.domain.errors import Invalid
from rota.domain.forecast.ahead import JobAhead, RunAhead
from rota.domain.forecast.expansion import Coming, Expanded, expand, held_back, thinned
from rota.domain.ids import JobId, micros
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


def coming_schedules(inputs: Inputs) -> dict[JobId, Coming]:
    """Those of the jobs that come by themselves."""
    return {job.id: found for job in inputs.jobs if (found := _coming(job, inputs))}


def scheduled_runs(
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
