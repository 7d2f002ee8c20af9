"""`rota job`: define, trigger and inspect jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from cyclopts import App, Parameter

from rota.api.limits import Limit, Resource
from rota.api.workers import JobType
from rota.cli import times
from rota.cli.job_views import JOBS, ledger_of, write_job, write_moved, write_skip
from rota.cli.options import (
    DESTROYING,
    EVERYBODY,
    REMOTE,
    WRITING,
    AtMost,
    Destroying,
    Duration,
    Format,
    Instant,
    Remote,
    Whose,
    Writing,
    take_time,
)
from rota.cli.printing import Column, ListView, print_data, print_list, print_one, write_pairs
from rota.cli.references import (
    JobReference,
    JobReferences,
    ask,
    ask_all,
    ask_list,
    job_named,
)
from rota.cli.runs import RUNS
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.cli.triggers import NOW, Range, Request, request_backfill, request_run
from rota.sdk.answers import JobDetail, MovedJob
from rota.sdk.client import Client
from rota.sdk.exchange import Call

_PAGE = 1_000


def used_by(client: Client, jobs: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the calendars, limits and named resources of these jobs, by field of the file."""
    calendars = {name for job in jobs for name in job.get("calendars", ())}
    limits = {limit["name"] for job in jobs for limit in job.get("rate_limits", ())}
    resources = {name for job in jobs for name in job.get("resources", {})}
    return {
        "calendars": [dict(client.get_calendar(name).document) for name in sorted(calendars)],
        "limits": _limits(client, limits) if limits else [],
        "resources": _resources(client, resources) if resources else [],
    }


def _limits(client: Client, names: Collection[str]) -> list[dict[str, Any]]:
    found = client.each(Client.list_limits(limit=_PAGE))
    return [_limit_document(limit) for limit in found if limit.name in names]


def _resources(client: Client, names: Collection[str]) -> list[dict[str, Any]]:
    """Return the shared resources; others of these names are what workers offer."""
    found = client.each(Client.list_resources(limit=_PAGE))
    return [_resource_document(resource) for resource in found if resource.name in names]


def _limit_document(limit: Limit) -> dict[str, Any]:
    each = {"each": limit.each} if limit.each else {}
    rate = {"tokens": limit.tokens, "per": limit.per, "burst": limit.burst}
    return {"name": limit.name, **rate, **each}


def _resource_document(resource: Resource) -> dict[str, Any]:
    is_counted = resource.kind == "counted"
    return {
        "name": resource.name,
        **({"total": resource.total} if is_counted else {"kind": resource.kind}),
    }


app = App(name="job", help="List, show, trigger, pause, delete … jobs.")

_IS_ALREADY: Mapping[str, Callable[[JobDetail], bool]] = {
    "paused": lambda job: job.paused,
    "resumed": lambda job: not job.paused,
    "enabled": lambda job: job.enabled,
    "disabled": lambda job: not job.enabled,
}


@app.command(name="list", usage="rota job list [OPTIONS] [PATTERN]")
def list_(
    pattern: Annotated[str | None, Parameter(help="Names to show; * stands for any text.")] = None,
    /,
    *,
    whose: Whose = EVERYBODY,
    limit: AtMost = 100,
    remote: Remote = REMOTE,
) -> None:
    """List jobs with their schedules, next and last runs."""
    call = Client.list_jobs(name=pattern, created_by=whose.creator)
    with remote.connect() as client:
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, JOBS)


@app.command
def show(job: JobReference, /, *, remote: Remote = REMOTE) -> None:
    """Show a job: its schedule, next times and definition."""
    name = job_named(job)
    with remote.connect() as client:
        found = ask(client, Client.get_job(name))
        upcoming = client.get_upcoming(found.value.id, count=5)
    print_one(
        remote,
        found,
        name=lambda job: job.name,
        page=lambda terminal, job: write_job(terminal, job, upcoming, times.now()),
    )


@app.command
def trigger(job: JobReference, /, *, request: Request = NOW, writing: Writing = WRITING) -> Exit:
    """Start a run of a job, now or at a time.

    Without --watch it returns once the run is stored.
    """
    return request_run(job_named(job), request, writing)


@app.command
def pause(
    job: JobReference,
    /,
    *,
    until: Annotated[
        Instant | None, Parameter(help="Resume by itself at this time (11:00, tomorrow 06:00).")
    ] = None,
    lasting: Annotated[
        Duration | None, Parameter(name="--for", help="Resume by itself after this time (2h).")
    ] = None,
    writing: Writing = WRITING,
) -> None:
    """Hold a job's schedule; runs that are going finish.

    Due times meanwhile are skipped, and not caught up.
    """
    if until is not None and lasting is not None:
        raise CommandFailed("give either --until or --for", code=Exit.USAGE)
    end = take_time(until, ahead=True)
    pausing = partial(Client.pause_job, until=end.sent, lasting=lasting)
    _change(job, pausing, "paused", writing, until=times.now() + lasting if lasting else end.at)


@app.command
def skip(job: JobReference, /, *, writing: Writing = WRITING) -> None:
    """Leave out the next due time of a job that would run."""
    name = job_named(job)
    with writing.connect() as client:
        if writing.dry_run:
            next_at = client.get_job(name).next_at
            due = times.due(next_at, times.now())
            writing.rehearse(f"would skip the next due time: {due}", changes=next_at is not None)
        skipped = ask(client, Client.skip_next(name))
    print_one(writing, skipped, name=lambda job: job.name, page=write_skip)


@app.command
def resume(job: JobReference, /, *, writing: Writing = WRITING) -> None:
    """Let a paused job go on; due times that passed meanwhile are not caught up."""
    _change(job, Client.resume_job, "resumed", writing)


@app.command
def enable(job: JobReference, /, *, writing: Writing = WRITING) -> None:
    """Let a disabled job be due again."""
    _change(job, Client.enable_job, "enabled", writing)


@app.command
def disable(job: JobReference, /, *, writing: Writing = WRITING) -> None:
    """Take a job out of service: nothing of it is due."""
    _change(job, Client.disable_job, "disabled", writing)


@app.command
def history(job: JobReference, /, *, limit: AtMost = 20, remote: Remote = REMOTE) -> None:
    """List the runs of a job, newest first."""
    with remote.connect() as client:
        listing = ask_list(client, Client.get_history(job_named(job)), limit=limit)
    print_list(remote, listing, RUNS)


@app.command
def ledger(
    job: JobReference,
    /,
    *,
    from_: Annotated[
        Instant | None,
        Parameter(
            name=["--from", "--since"], help="From this time on (5m, yesterday, 2026-11-18)."
        ),
    ] = None,
    to: Annotated[
        Instant | None, Parameter(name=["--to", "--until"], help="Up to this time.")
    ] = None,
    limit: AtMost = 100,
    remote: Remote = REMOTE,
) -> None:
    """Show what became of each due time, the newest first: a run, or why there is none.

    Times without an offset are on the same clocks as those in the table: see --tz.
    """
    first, last = take_time(from_, ahead=False), take_time(to, ahead=False)
    with remote.connect() as client:
        call = Client.get_ledger(job_named(job), since=first.sent, until=last.sent)
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, ledger_of(first.at, last.at))


@app.command(usage="rota job backfill JOB --from TIME [OPTIONS]")
def backfill(job: JobReference, /, *, wanted: Range, remote: Remote = REMOTE) -> Exit:
    """Run due times of the past: all of a range, or those that are missing or failed.

    The runs have a lower priority than the job, and the ledger keeps what it said.
    """
    return request_backfill(job_named(job), wanted, remote)


@app.command(usage="rota job export [OPTIONS] [JOB…]")
def export(*jobs: JobReferences, remote: Remote = REMOTE) -> None:
    """Print jobs, with what they use, as a job file that `rota apply` reads back.

    All jobs if none is named.
    """
    with remote.connect() as client:
        names = [job_named(job) for job in jobs]
        if not names:
            names = [job.id for job in client.each(Client.list_jobs(limit=1_000))]
        documents = [client.get_job(name).document for name in names]
        used = used_by(client, documents)
    if remote.format in (Format.JSON, Format.JSONL):
        print_data(remote, {**used, "jobs": documents})
    else:
        from rota.runtime.offline import job_file  # slow to import, and not for the other verbs

        remote.terminal().write(job_file(documents, **used).removesuffix("\n"))


def _having(kind: JobType) -> str:
    """Name the workers that have a type; jobs of type `external` need none."""
    return "needs none" if kind.name == "external" else ", ".join(kind.workers) or "none now"


TYPES: ListView[JobType] = ListView(
    columns=(
        Column("TYPE", lambda kind: kind.name),
        Column("FROM", lambda kind: "Rota" if kind.is_built_in else "a plug-in"),
        Column("WORKERS", lambda kind: _having(kind)),
        Column("LACKING", lambda kind: ", ".join(kind.lacking)),
        Column(
            "SINCE",
            lambda kind: times.moment(kind.offered_at, times.now()) if kind.offered_at else "",
            only_wide=True,
        ),
    ),
    name=lambda kind: kind.name,
    empty="no types",
)


@app.command
def types(
    name: Annotated[str | None, Parameter(help="Show this one, and what it takes.")] = None,
    /,
    *,
    remote: Remote = REMOTE,
) -> None:
    """List the types that jobs may have, and which workers have them; or show one."""
    with remote.connect() as client:
        if name is None:
            print_list(remote, ask_all(client, Client.list_job_types()), TYPES)
            return
        found = ask(client, Client.get_job_type(name))
    print_one(remote, found, name=lambda kind: kind.name, page=write_type)


def write_type(terminal: Terminal, kind: JobType) -> None:
    """Print a type on one page, its JSON Schema last."""
    write_pairs(
        terminal,
        [
            ("type", f"{kind.name} ({'of Rota' if kind.is_built_in else 'of a plug-in'})"),
            ("workers", _having(kind)),
            *((f"not on {worker}", reason) for worker, reason in kind.lacking.items()),
            ("offered", times.moment(kind.offered_at, times.now()) if kind.offered_at else ""),
            ("api version", str(kind.api_version or "")),
            ("parameters", "" if kind.is_built_in or kind.schema else _without_schema(kind)),
        ],
    )
    if kind.schema:
        terminal.write("")
        terminal.write("parameters, as JSON Schema:")
        for line in json.dumps(kind.schema, indent=2, ensure_ascii=False).splitlines():
            terminal.write(f"  {inert(line)}")


def _without_schema(kind: JobType) -> str:
    return "anything: it has no schema" if kind.offered_at else "not known: no worker ever had it"


@app.command
def delete(job: JobReference, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a job; its live runs finish and its history stays."""
    name = job_named(job)
    terminal = destroying.terminal()
    with destroying.connect() as client:
        found = client.get_job(name)
        if found.followed_by:
            names = ", ".join(map(inert, found.followed_by))
            terminal.tell(f"jobs that come after it will wait for it in vain: {names}")
        if destroying.dry_run:
            destroying.rehearse(f"would delete job {found.name}")
        terminal.confirm(
            f"delete job {inert(found.name)}?", yes=destroying.yes, otherwise="add --yes to do it"
        )
        client.delete_job(found.id, if_match=found.etag or None)
    terminal.tell(f"deleted job {inert(found.name)}; its history stays")


def _change(
    job: str,
    change: Callable[[str], Call[MovedJob]],
    done: str,
    writing: Writing,
    *,
    until: datetime | None = None,
) -> None:
    """Change the state of a job; an end (`until`) changes also one that is `done` already."""
    name = job_named(job)
    with writing.connect() as client:
        if writing.dry_run:
            found = client.get_job(name)
            end = "" if until is None else f" until {times.absolute(until)}"
            would = f"job {found.name} would be {done}{end}; it is {found.status} now"
            changes = until is not None or not _IS_ALREADY[done](found)
            writing.rehearse(would, changes=changes)
        changed = ask(client, change(name))
    print_one(
        writing,
        changed,
        name=lambda job: job.name,
        page=lambda terminal, job: write_moved(terminal, job, done),
    )
