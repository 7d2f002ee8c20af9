"""The due times of jobs and of templates of carts, as their documents say."""

from __future__ import annotations

from datetime import datetime

from rota.domain.carts.definition import CartTemplate
from rota.domain.errors import Invalid
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.schedule import Timetable, compile_schedule, describe
from rota.domain.spec import JobSpec


def timetable(spec: JobSpec, anchor: datetime) -> Timetable | None:
    """The due times of a job; None: on demand only."""
    if spec.schedule is None:
        return None
    return compile_schedule(spec.schedule, key=f"{spec.project}/{spec.name}", anchor=anchor)


def timetable_of(job: Job) -> Timetable | None:
    """Those of a job in the store. `Invalid` if this release cannot read it."""
    return timetable(read_job(job.document), job.anchor)


def cart_timetable(project: str, template: CartTemplate, anchor: datetime) -> Timetable | None:
    """When a template becomes a cart by itself; None: on demand only."""
    if template.schedule is None:
        return None
    key = f"{project}/cart/{template.name}"
    return compile_schedule(template.schedule, key=key, anchor=anchor)


def words_of(spec: JobSpec, anchor: datetime) -> str:
    """When a job runs by itself, in words; "" on demand."""
    table = timetable(spec, anchor)
    after = f"after {', '.join(spec.after.jobs)}" if spec.after.jobs else ""
    return ", ".join(part for part in (describe(table) if table else "", after) if part)


def words_if_readable(job: Job) -> str:
    """The same of a job in the store; "" too if this release cannot read it."""
    try:
        return words_of(read_job(job.document), job.anchor)
    except Invalid:
        return ""


def stamp(time: datetime) -> str:
    """`2030-01-01 12:00:00 UTC`, of an instant in UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
