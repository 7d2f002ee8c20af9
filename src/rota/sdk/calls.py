"""What can be asked about jobs, runs and the cluster.

One function per thing to ask; the other topics have modules beside this one. `Client` and
`AsyncClient` make methods of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from rota.sdk.answers import (
    Backfill,
    Batch,
    Event,
    Job,
    JobDetail,
    LedgerEntry,
    LogMatches,
    LogWindow,
    MovedJob,
    Page,
    Run,
    RunDetail,
    SchedulePreview,
    Upcoming,
)
from rota.sdk.cluster_answers import Cluster, Server, Shard, Worker
from rota.sdk.exchange import Call, get, path_of, post
from rota.sdk.plan_answers import Plan, Submission, Validation
from rota.sdk.values import to_json
from rota.sdk.why_answers import Why

Inputs = Mapping[str, object]
Instant = datetime | str  # text: RFC 3339

_NDJSON = {"Content-Type": "application/x-ndjson"}


def list_jobs(
    *, name: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Job]]:
    """Jobs by name; `name` may have `*`."""
    return get(Page[Job], "/jobs", name=name, limit=limit, cursor=cursor)


def get_job(job: str) -> Call[JobDetail]:
    """A job by name or id."""
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
    """Create and update what a job file (YAML or JSON) has; with `plan`, only say what would be.

    `name` is the set that `prune` compares with, usually the file's stem; `if_match` is a plan's
    etag: whatever changed since then is refused. `items` are those of the files that its carts
    name, each with the name of its `cart`: the server cannot read those files.
    """
    call = post(Plan, "/jobs:apply", name=name).with_file(text)
    if lines := [to_json(item) for item in items]:
        call = replace(call, headers=_NDJSON, body=b"\n".join([to_json(text), *lines]))
    call = call.with_query(plan=plan or None, prune=prune or None)
    return call.if_match(if_match)


def validate(text: str) -> Call[Validation]:
    """Check a job file; `Invalid` has all that is wrong."""
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
    """Until it is resumed, until a time (also `11:00`), or for a while (`2h`)."""
    given = {"until": until, "for": lasting}
    document = {key: value for key, value in given.items() if value is not None}
    return post(MovedJob, f"{path_of('jobs', job)}:pause", document or None)


def skip_next(job: str) -> Call[MovedJob]:
    """Leave out the next due time that would run."""
    return post(MovedJob, f"{path_of('jobs', job)}:skip")


def resume_job(job: str) -> Call[MovedJob]:
    return post(MovedJob, f"{path_of('jobs', job)}:resume")


def enable_job(job: str) -> Call[MovedJob]:
    return post(MovedJob, f"{path_of('jobs', job)}:enable")


def disable_job(job: str) -> Call[MovedJob]:
    return post(MovedJob, f"{path_of('jobs', job)}:disable")


def get_upcoming(job: str, *, count: int | None = None) -> Call[Upcoming]:
    """The next due times of a job."""
    return get(Upcoming, path_of("jobs", job, "upcoming"), count=count)


def get_history(
    job: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Run]]:
    """The runs of a job, newest first."""
    return get(Page[Run], path_of("jobs", job, "runs"), limit=limit, cursor=cursor)


def get_ledger(
    job: str,
    *,
    since: Instant | None = None,
    until: Instant | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[LedgerEntry]]:
    """What became of each due time of a job."""
    call = get(Page[LedgerEntry], path_of("jobs", job, "ledger"), limit=limit, cursor=cursor)
    return call.with_query(**{"from": since, "to": until})


def trigger(
    job: str,
    inputs: Inputs | None = None,
    *,
    at: Instant | None = None,
    priority: int | None = None,
    key: str | None = None,
) -> Call[Run]:
    """Make a run of a job, now or `at` a time. The same `key` again gives the same run.

    Without a key one is made up, so that a broken connection can never trigger twice.
    """
    document: dict[str, Any] = {"inputs": dict(inputs or {})}
    if at is not None:
        document["at"] = at
    if priority is not None:
        document["priority"] = priority
    return post(Run, path_of("jobs", job, "runs"), document).with_key(key)


def trigger_many(job: str, inputs: Sequence[Inputs], *, key: str | None = None) -> Call[Batch]:
    """One run for each of the inputs, at most 10,000, all or none."""
    document = {"inputs": [dict(each) for each in inputs]}
    return post(Batch, f"{path_of('jobs', job, 'runs')}:batch", document).with_key(key)


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
    """Run the due times of start ≤ due ≤ end; with `plan`, only say which.

    `only`: "missing" or "failed". Without an end, all up to now.
    """
    given = {"from": start, "to": end, "only": only, "max_parallel": max_parallel}
    document = {name: value for name, value in given.items() if value is not None}
    call = post(Backfill, f"{path_of('jobs', job)}:backfill", document, plan=plan or None)
    return call.with_key(key)


def list_runs(
    *,
    where: str | None = None,
    state: str | None = None,
    job: str | None = None,
    trigger: str | None = None,
    backfill: str | None = None,
    cart: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    active: bool | None = None,
    timezone: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Run]]:
    """Runs, newest first; `where` is a filter such as `state:failed job:nightly-* since:6h`.

    Days and times without an offset are on the clocks of `timezone`, by default UTC.
    """
    return get(
        Page[Run],
        "/runs",
        where=where,
        state=state,
        job=job,
        trigger=trigger,
        backfill=backfill,
        cart=cart,
        since=since,
        until=until,
        active=active,
        timezone=timezone,
        limit=limit,
        cursor=cursor,
    )


def get_run(run: str) -> Call[RunDetail]:
    """A run by id, or by a prefix that only one run has."""
    return get(RunDetail, path_of("runs", run))


def explain(run: str) -> Call[Why]:
    """Why a run is where it is."""
    return get(Why, path_of("runs", run, "why"))


def get_run_events(
    run: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Event]]:
    return get(Page[Event], path_of("runs", run, "events"), limit=limit, cursor=cursor)


def cancel_run(run: str) -> Call[Run]:
    return post(Run, f"{path_of('runs', run)}:cancel")


def retry_run(run: str) -> Call[Run]:
    """A new run with the same inputs."""
    return post(Run, f"{path_of('runs', run)}:retry")


def resolve_run(run: str, outcome: str) -> Call[Run]:
    """Say how an UNKNOWN run ended: completed, failed or retry."""
    return post(Run, f"{path_of('runs', run)}:resolve", {"as": outcome})


def get_log(
    run: str,
    *,
    attempt: int | None = None,
    first_line: int | None = None,
    limit: int | None = None,
    tail: int | None = None,
) -> Call[LogWindow]:
    """Some lines of a run's output; of its latest attempt unless one is named."""
    path = path_of("runs", run, "log")
    return get(LogWindow, path, attempt=attempt, first_line=first_line, limit=limit, tail=tail)


def search_log(
    run: str,
    text: str,
    *,
    attempt: int | None = None,
    after_line: int | None = None,
    limit: int | None = None,
) -> Call[LogMatches]:
    """Lines that contain a text, from a line on."""
    path = f"{path_of('runs', run, 'log')}:search"
    return get(LogMatches, path, q=text, attempt=attempt, after_line=after_line, limit=limit)


def raw_log(run: str, *, attempt: int | None = None) -> Call[bytes]:
    """The exact bytes an attempt printed; big ones are better streamed than sent."""
    return get(bytes, path_of("runs", run, "log", "raw"), attempt=attempt)


def log_stream(
    run: str, *, attempt: int | None = None, from_line: int | None = None
) -> Call[bytes]:
    path = path_of("runs", run, "log", "stream")
    return _event_stream(get(bytes, path, attempt=attempt, from_line=from_line))


def list_events(
    *, after: int | str | None = None, tail: int | None = None, limit: int | None = None
) -> Call[Page[Event]]:
    """Events past a position (an event's id), or the latest ones, oldest first."""
    return get(Page[Event], "/events", after=after, tail=tail, limit=limit)


def event_stream(*, after: int | str | None = None) -> Call[bytes]:
    return _event_stream(get(bytes, "/events/stream", after=after))


def list_workers(*, all: bool = False) -> Call[Page[Worker]]:  # noqa: A002 (the API's word)
    """Workers that are alive; with `all`, past sessions too."""
    return get(Page[Worker], "/workers", all=all or None)


def drain_worker(worker: str) -> Call[Page[Worker]]:
    """Let a worker finish what it holds and give it nothing new; what it is now."""
    return post(Page[Worker], path_of("workers", worker, "drain"))


def resume_worker(worker: str) -> Call[Page[Worker]]:
    """Give a drained worker work again."""
    return post(Page[Worker], path_of("workers", worker, "resume"))


def get_cluster() -> Call[Cluster]:
    """Live servers, shards, overdue schedules, and what waits for workers."""
    return get(Cluster, "/cluster")


def list_servers(*, all: bool = False) -> Call[Page[Server]]:  # noqa: A002 (the API's word)
    """Servers that are alive; with `all`, those of the last day."""
    return get(Page[Server], "/servers", all=all or None)


def list_shards() -> Call[Page[Shard]]:
    """Shards by number, with their owners and epochs."""
    return get(Page[Shard], "/shards")


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
    """A schedule in words and its next due times after `start`.

    `gap` and `fold` are those of a job's `dst`; `job` is the name that `H` depends on.
    """
    call = get(SchedulePreview, "/schedule/preview", expression=expressions, timezone=timezone)
    return call.with_query(**{"from": start, "count": count}, gap=gap, fold=fold, job=job)


def get_schema() -> Call[dict[str, Any]]:
    """The JSON Schema of the job file."""
    return get(dict[str, Any], "/schema")


def _event_stream(call: Call[bytes]) -> Call[bytes]:
    return replace(call, headers={"Accept": "text/event-stream"})
