"""Due times that passed without an answer, found by a change that must not lose them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from rota.domain.errors import Invalid
from rota.domain.firing import FiringRules
from rota.domain.ids import shard_of
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.operations.backends import Backends
from rota.operations.calendars import blackouts_of
from rota.operations.firing import MISFIRE_GRACE, planned_firing
from rota.operations.timetables import timetable
from rota.ports.records import DueSchedule, Firing


async def overdue_firing(backends: Backends, job: Job, now: datetime) -> Firing | None:
    """What the scheduler would do about a job now, for the version that the job has.

    None: nothing is overdue, the job is held, or this server cannot read it.
    """
    if job.next_at is None or job.next_at > now:
        return None
    due = DueSchedule(
        job_id=job.id,
        next_at=job.next_at,
        schedule_version=job.schedule_version,
        job_version=job.version,
        anchor=job.anchor,
        shard=shard_of(job.id),
    )
    with suppress(Invalid):
        rules = await _rules(backends, job)
        if rules is not None:
            after = rules.timetable.next_after(due.next_at)
            return await planned_firing(due, rules, after, now)
    return None


async def _rules(backends: Backends, job: Job) -> FiringRules | None:
    spec = read_job(job.document)
    table = timetable(spec, job.anchor)
    if table is None or spec.schedule is None:
        return None
    blackouts = await blackouts_of(backends, job.project, spec.schedule.calendars)
    return FiringRules(table, spec.schedule.misfire, MISFIRE_GRACE, blackouts)


def after_firing(job: Job, firing: Firing) -> Job:
    """The job as it stands once that is written."""
    return replace(job, next_at=firing.next_at, waits=firing.waits)
