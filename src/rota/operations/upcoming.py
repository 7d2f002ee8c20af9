"""What comes next, of all jobs together."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.domain.ids import SHARD_COUNT
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.operations.backends import Backends
from rota.operations.coming import due_times_from
from rota.operations.timetables import timetable
from rota.ports.records import JobQuery

_MAX_SCHEDULES = 10_000  # looked at, of all projects
_MAX_JOBS = 1_000
_MAX_TIMES = 100  # of one job


async def upcoming_jobs(
    backends: Backends, project: str, within: timedelta
) -> list[tuple[Job, list[datetime]]]:
    """The jobs of a project that are due in the time to come, with their due times in it.

    By the first of these; at most 1,000 jobs with 100 times each.
    """
    end = await backends.store.now() + within
    due = await backends.store.due_schedules(end, _MAX_SCHEDULES, range(SHARD_COUNT))
    ids = [schedule.job_id for schedule in due]
    jobs = await backends.store.jobs(JobQuery(project=project, ids=ids))
    ordered = sorted(jobs, key=lambda job: job.next_at or end)
    found = [(job, [due for due in _due_times(job) if due < end]) for job in ordered]
    return [(job, times) for job, times in found if times][:_MAX_JOBS]


def _due_times(job: Job) -> tuple[datetime, ...]:
    table = timetable(read_job(job.document), job.anchor)
    if table is None or job.next_at is None:
        return ()
    return due_times_from(table, job.next_at, _MAX_TIMES)[0]
