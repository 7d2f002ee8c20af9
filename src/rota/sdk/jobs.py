"""Calls about jobs, the files that define them, and their due times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from rota.api.answers import Page
from rota.api.backfills import Backfill, LedgerEntry
from rota.api.jobs import Job, JobDetail, MovedJob, SchedulePreview, Upcoming
from rota.api.plans import Plan, Submission, Validation
from rota.api.runs import Run
from rota.sdk.exchange import NDJSON, Call, Instant, get, path_of, post, to_json
from rota.sdk.verbs import Verb


def list_jobs(
    *,
    name: str | None = None,
    created_by: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Job]]:
    """List jobs by name; `name` may have `*`.

    `created_by` is `me`, or for admins anybody's handle.
    """
    call = get(Page[Job], "/jobs", name=name, created_by=created_by)
    return call.with_query(limit=limit, cursor=cursor)


def get_job(job: str) -> Call[JobDetail]:
    """Get a job by name or id."""
    return get(JobDetail, path_of("jobs", job))


def apply(
    text: str,
    *,
    name: str | None = None,
    plan: bool = False,
    prune: bool = False,
    if_match: str | None = None,
    items: Iterable[Mapping[str, object]] = (),
) -> Call[Plan]:
    """Create and update what a job file (YAML or JSON) has; with `plan`, only return the changes.

    `name` is the set that `prune` compares with, usually the file's stem. Without it, and without
    a `set` in the text, what is already there stays in its set. `if_match` is a plan's etag:
    whatever changed since then is refused. `items` are those of the files that its carts name,
    each with the name of its `cart`: the server cannot read those files.
    """
    call = post(Plan, "/jobs:apply", name=name).with_file(text)
    if lines := [to_json(item) for item in items]:
        call = replace(call, headers=NDJSON, body=b"\n".join([to_json(text), *lines]))
    call = call.with_query(plan=plan or None, prune=prune or None)
    return call.if_match(if_match)


def validate(text: str) -> Call[Validation]:
    """Check a job file; raise `Invalid` with all problems."""
    return post(Validation, "/jobs:validate").with_file(text)


def submit_job(text: str) -> Call[Submission]:
    """Apply a job file, and trigger the jobs in it that have no schedule."""
    return post(Submission, "/submit_job").with_file(text)


def delete_job(job: str, *, if_match: str | None = None) -> Call[None]:
    """Delete a job; its live runs finish and its history stays."""
    return Call(type(None), "DELETE", path_of("jobs", job)).if_match(if_match)


def pause_job(
    job: str, *, until: Instant | None = None, lasting: timedelta | str | None = None
) -> Call[MovedJob]:
    """Pause a job until it is resumed, until a time (also `11:00`), or for a while (`2h`).

    A time without an offset is on the clocks of the job's time zone.
    """
    given = {"until": until, "for": lasting}
    document = {key: value for key, value in given.items() if value is not None}
    return post(MovedJob, f"{path_of('jobs', job)}:pause", document or None)


def skip_next(job: str) -> Call[MovedJob]:
    """Skip the next due time that would run."""
    return post(MovedJob, f"{path_of('jobs', job)}:skip")


def resume_job(job: str) -> Call[MovedJob]:
    return post(MovedJob, f"{path_of('jobs', job)}:resume")


def enable_job(job: str) -> Call[MovedJob]:
    return post(MovedJob, f"{path_of('jobs', job)}:enable")


def disable_job(job: str) -> Call[MovedJob]:
    return post(MovedJob, f"{path_of('jobs', job)}:disable")


def get_upcoming(job: str, *, count: int | None = None) -> Call[Upcoming]:
    """List the next due times of a job."""
    return get(Upcoming, path_of("jobs", job, "upcoming"), count=count)


def get_history(
    job: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Run]]:
    """List the runs of a job, newest first."""
    return get(Page[Run], path_of("jobs", job, "runs"), limit=limit, cursor=cursor)


def get_ledger(
    job: str,
    *,
    since: Instant | None = None,
    until: Instant | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[LedgerEntry]]:
    """List what became of each due time of a job.

    Times without an offset are on the clocks of the job's time zone.
    """
    call = get(Page[LedgerEntry], path_of("jobs", job, "ledger"), limit=limit, cursor=cursor)
    return call.with_query(**{"from": since, "to": until})


def backfill_job(
    job: str,
    start: Instant,
    end: Instant | None = None,
    *,
    only: str | None = None,
    max_parallel: int | None = None,
    plan: bool = False,
    key: str | None = None,
) -> Call[Backfill]:
    """Run the due times of start ≤ due ≤ end; with `plan`, only return which.

    `only`: "missing" or "failed". Without an end, all up to now. Times without an offset are on
    the clocks of the job's time zone.
    """
    given = {"from": start, "to": end, "only": only, "max_parallel": max_parallel}
    document = {name: value for name, value in given.items() if value is not None}
    call = post(Backfill, f"{path_of('jobs', job)}:backfill", document, plan=plan or None)
    return call.with_key(key)


def preview_schedule(
    expressions: str | Sequence[str],
    *,
    timezone: str | None = None,
    start: Instant | None = None,
    count: int | None = None,
    gap: str | None = None,
    fold: str | None = None,
    job: str | None = None,
) -> Call[SchedulePreview]:
    """Describe a schedule in words, with its next due times after `start`.

    `gap` and `fold` are those of a job's `dst`; `job` is the name that `H` depends on.
    """
    call = get(SchedulePreview, "/schedule/preview", expression=expressions, timezone=timezone)
    return call.with_query(**{"from": start, "count": count}, gap=gap, fold=fold, job=job)


def get_schema() -> Call[dict[str, Any]]:
    """Get the JSON Schema of the job file."""
    return get(dict[str, Any], "/schema")


class JobVerbs:
    apply = Verb(apply)
    backfill_job = Verb(backfill_job)
    delete_job = Verb(delete_job)
    disable_job = Verb(disable_job)
    enable_job = Verb(enable_job)
    get_history = Verb(get_history)
    get_job = Verb(get_job)
    get_ledger = Verb(get_ledger)
    get_schema = Verb(get_schema)
    get_upcoming = Verb(get_upcoming)
    list_jobs = Verb(list_jobs)
    pause_job = Verb(pause_job)
    preview_schedule = Verb(preview_schedule)
    resume_job = Verb(resume_job)
    skip_next = Verb(skip_next)
    submit_job = Verb(submit_job)
    validate = Verb(validate)
