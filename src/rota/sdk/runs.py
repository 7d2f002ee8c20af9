"""Calls about runs, and the handle of a submitted run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from rota.api.answers import Page
from rota.api.events import Event
from rota.api.output import LogLine, LogMatches, LogPage, LogWindow
from rota.api.runs import Batch, PlannedRun, Run, RunDetail
from rota.api.why import Why
from rota.sdk.errors import RunNotCompleted
from rota.sdk.exchange import Call, Inputs, Instant, get, live, path_of, post
from rota.sdk.verbs import Verb

T = TypeVar("T")


def trigger(
    job: str,
    inputs: Inputs | None = None,
    *,
    at: Instant | None = None,
    priority: int | None = None,
    key: str | None = None,
) -> Call[Run]:
    """Make a run of a job, now or `at` a time. The same `key` again gives the same run.

    Without a key one is made up, so that a broken connection can never trigger twice. A time
    without an offset is on the clocks of the job's time zone.
    """
    document = _trigger_document(inputs, at, priority)
    return post(Run, path_of("jobs", job, "runs"), document).with_key(key)


def plan_run(
    job: str,
    inputs: Inputs | None = None,
    *,
    at: Instant | None = None,
    priority: int | None = None,
) -> Call[PlannedRun]:
    """Return the run that `trigger` would make, or raise as it would; makes nothing."""
    document = _trigger_document(inputs, at, priority)
    return post(PlannedRun, f"{path_of('jobs', job, 'runs')}:plan", document)


def _trigger_document(
    inputs: Inputs | None, at: Instant | None, priority: int | None
) -> dict[str, Any]:
    document: dict[str, Any] = {"inputs": dict(inputs or {})}
    if at is not None:
        document["at"] = at
    if priority is not None:
        document["priority"] = priority
    return document


def trigger_many(job: str, inputs: Sequence[Inputs], *, key: str | None = None) -> Call[Batch]:
    """Make one run for each of the inputs, at most 10,000, all or none."""
    document = {"inputs": [dict(each) for each in inputs]}
    return post(Batch, f"{path_of('jobs', job, 'runs')}:batch", document).with_key(key)


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
    created_by: str | None = None,
    timezone: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Run]]:
    """List runs, newest first; `where` is a filter such as `state:failed job:nightly-* since:6h`.

    Days and times without an offset are on the clocks of `timezone`, by default UTC. `created_by`
    is `me`, or for admins anybody's handle: who asked for a run; of one that a schedule or another
    job made, who made its job.
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
        created_by=created_by,
        timezone=timezone,
        limit=limit,
        cursor=cursor,
    )


def get_run(run: str) -> Call[RunDetail]:
    """Get a run by id, or by a prefix that only one run has."""
    return get(RunDetail, path_of("runs", run))


def explain(run: str) -> Call[Why]:
    """Explain why a run is where it is."""
    return get(Why, path_of("runs", run, "why"))


def get_run_events(
    run: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Event]]:
    return get(Page[Event], path_of("runs", run, "events"), limit=limit, cursor=cursor)


def cancel_run(run: str) -> Call[Run]:
    return post(Run, f"{path_of('runs', run)}:cancel")


def retry_run(run: str) -> Call[Run]:
    """Make a new run with the same inputs."""
    return post(Run, f"{path_of('runs', run)}:retry")


def resolve_run(run: str, outcome: str) -> Call[Run]:
    """Say how an UNKNOWN run ended: completed, failed or retry."""
    return post(Run, f"{path_of('runs', run)}:resolve", {"as": outcome})


def hold_run(run: str) -> Call[Run]:
    """Keep a run that waits from starting until it is released."""
    return post(Run, f"{path_of('runs', run)}:hold")


def release_run(run: str) -> Call[Run]:
    """End a hold: the run waits again like any other."""
    return post(Run, f"{path_of('runs', run)}:release")


def reprioritise_run(run: str, priority: int) -> Call[Run]:
    """Give a run that waits another priority, 0 to 9; 9 goes first."""
    return post(Run, f"{path_of('runs', run)}:reprioritise", {"priority": priority})


class RunVerbs:
    cancel_run = Verb(cancel_run)
    explain = Verb(explain)
    get_run = Verb(get_run)
    get_run_events = Verb(get_run_events)
    hold_run = Verb(hold_run)
    list_runs = Verb(list_runs)
    plan_run = Verb(plan_run)
    release_run = Verb(release_run)
    reprioritise_run = Verb(reprioritise_run)
    resolve_run = Verb(resolve_run)
    retry_run = Verb(retry_run)
    trigger = Verb(trigger)
    trigger_many = Verb(trigger_many)


class RunClient(Protocol):
    """Methods of a client that jobs and handles need."""

    def now(self) -> datetime: ...

    def address_of(self, run: str) -> str: ...

    def trigger(
        self,
        job: str,
        inputs: Inputs | None = None,
        *,
        at: datetime | str | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> Run: ...

    def trigger_many(
        self, job: str, inputs: Sequence[Inputs], *, key: str | None = None
    ) -> Batch: ...

    def wait(self, run: str, timeout_seconds: float | None = None) -> RunDetail: ...

    def cancel_run(self, run: str) -> Run: ...

    def follow_log(self, run: str) -> Iterator[LogWindow | Run]: ...


class AsyncRunClient(Protocol):
    """Methods of a client that jobs and handles need on an event loop."""

    def now(self) -> datetime: ...

    def address_of(self, run: str) -> str: ...

    def trigger(
        self,
        job: str,
        inputs: Inputs | None = None,
        *,
        at: datetime | str | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> Awaitable[Run]: ...

    def wait(self, run: str, timeout_seconds: float | None = None) -> Awaitable[RunDetail]: ...

    def cancel_run(self, run: str) -> Awaitable[Run]: ...

    def follow_log(self, run: str) -> AsyncIterator[LogWindow | Run]: ...


@dataclass(frozen=True, slots=True)
class RunResult(Generic[T]):
    """Result of a run that has ended."""

    run: RunDetail
    read_output: Callable[[Any], T]

    @property
    def state(self) -> str:
        return self.run.state

    @property
    def output(self) -> T:
        """Return the function's output; raise `RunNotCompleted` if there is none."""
        if self.run.state != "COMPLETED":
            raise RunNotCompleted(self.run)
        return self.read_output(self.run.outputs)


@dataclass(frozen=True, slots=True)
class RunHandle(Generic[T]):
    """Handle of a submitted run."""

    id: str
    client: RunClient
    read_output: Callable[[Any], T]

    @property
    def url(self) -> str:
        return self.client.address_of(self.id)

    def wait(self, timeout: float | None = None) -> RunResult[T]:
        """Wait until the run has ended; a TimeoutError after so many seconds leaves it going."""
        return RunResult(self.client.wait(self.id, timeout), self.read_output)

    def cancel(self) -> None:
        self.client.cancel_run(self.id)

    def logs(self) -> Iterator[LogLine]:
        """Yield output as it comes, until the run has ended."""
        for part in self.client.follow_log(self.id):
            if isinstance(part, LogWindow):
                yield from part.lines


@dataclass(frozen=True, slots=True)
class AsyncRunHandle(Generic[T]):
    """Handle of a submitted run, for an event loop."""

    id: str
    client: AsyncRunClient
    read_output: Callable[[Any], T]

    @property
    def url(self) -> str:
        return self.client.address_of(self.id)

    async def wait(self, timeout: float | None = None) -> RunResult[T]:
        """Wait until the run has ended; a TimeoutError after so many seconds leaves it going."""
        return RunResult(await self.client.wait(self.id, timeout), self.read_output)

    async def cancel(self) -> None:
        await self.client.cancel_run(self.id)

    async def logs(self) -> AsyncIterator[LogLine]:
        """Yield output as it comes, until the run has ended."""
        async for part in self.client.follow_log(self.id):
            if isinstance(part, LogWindow):
                for line in part.lines:
                    yield line


def get_log(
    run: str,
    *,
    attempt: int | None = None,
    first_line: int | None = None,
    limit: int | None = None,
    tail: int | None = None,
) -> Call[LogWindow]:
    """Get some lines of a run's output; of its latest attempt unless one is named."""
    path = path_of("runs", run, "log")
    return get(LogWindow, path, attempt=attempt, first_line=first_line, limit=limit, tail=tail)


def get_log_page(
    run: str,
    *,
    attempt: int | None = None,
    first_line: int | None = None,
    last: int | None = None,
) -> Call[LogPage]:
    """Get about a megabyte of output, from a line on or so many lines before the end.

    `read_log` walks all pages.
    """
    path = path_of("runs", run, "log", "blocks")
    return get(LogPage, path, attempt=attempt, first_line=first_line, last=last)


def search_log(
    run: str,
    text: str,
    *,
    attempt: int | None = None,
    after_line: int | None = None,
    limit: int | None = None,
) -> Call[LogMatches]:
    """Find lines that contain a text, from a line on."""
    path = f"{path_of('runs', run, 'log')}:search"
    return get(LogMatches, path, q=text, attempt=attempt, after_line=after_line, limit=limit)


def raw_log(run: str, *, attempt: int | None = None) -> Call[bytes]:
    """Get the exact bytes an attempt printed; large output is better streamed than sent."""
    return get(bytes, path_of("runs", run, "log", "raw"), attempt=attempt)


def log_stream(
    run: str, *, attempt: int | None = None, from_line: int | None = None
) -> Call[bytes]:
    path = path_of("runs", run, "log", "stream")
    return live(get(bytes, path, attempt=attempt, from_line=from_line))


class OutputVerbs:
    get_log = Verb(get_log)
    get_log_page = Verb(get_log_page)
    raw_log = Verb(raw_log)
    search_log = Verb(search_log)
