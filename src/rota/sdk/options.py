"""Options of a job beside its function, in the job file's own vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

Duration = str | timedelta  # text: 30s, 1h30m, 200ms

_MICROSECOND = timedelta(microseconds=1)
_SHORTEST_INTERVAL = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class When:
    """Schedule together with its time zone."""

    expression: str
    tz: str | None = None  # IANA name; None: the job's `timezone`


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry policy of a job."""

    attempts: int  # in total, the first included
    backoff: Literal["fixed", "exponential"] = "fixed"
    delay: Duration | None = None  # None: the job file's default, as below
    max_delay: Duration | None = None
    jitter: float | str | None = None  # share of the delay, drawn at random and added
    when: Sequence[Literal["failed", "timed_out"]] | None = None


class JobOptions(TypedDict, total=False):
    """Fields of a job file that a function's job may have; its reference page describes each."""

    name: str  # the function's, unless given
    title: str
    description: str  # the first line of the function's docstring, unless given
    owner: str
    runbook: str
    labels: Mapping[str, str]
    enabled: bool
    schedule: When | str | Sequence[When | str]
    timezone: str
    run_once: bool
    starts: datetime | str
    ends: datetime | str
    jitter: Duration
    spread: Duration
    dst: Mapping[str, str]
    misfire: Mapping[str, object]
    overlap: Literal["skip", "queue_one", "queue_all", "cancel_previous", "allow"]
    max_concurrency: int
    start_within: Duration
    late: Literal["run", "drop"]
    interval_from: Literal["schedule", "completion"]
    calendars: Sequence[str]
    priority: int
    share: str
    pool: str
    needs: Mapping[str, str]
    expect: Duration
    resources: Mapping[str, float | str]  # a number, a size, or "read" or "write"
    rate_limits: Sequence[str | Mapping[str, object]]
    exclusive_by: Sequence[str]
    after: Sequence[str | Mapping[str, object]] | Mapping[str, object]
    delivery: Literal["at_least_once", "at_most_once"]
    timeout: Duration
    deadline: Duration
    grace: Duration
    retry: Retry | int
    max_losses: int
    probe: str | Sequence[str] | Mapping[str, object]
    stalled_after: Duration
    log_limit: str
    output: Literal["auto", "blobs"]


class DefinedOptions(JobOptions, total=False):
    """Fields of a job that no function does; its `name` is required."""

    parameters: Mapping[str, Any]  # what it gives its type
    inputs: Mapping[str, Mapping[str, object]]


def cron(expression: str, *, tz: str | None = None) -> When:
    """Create a schedule of a cron expression: `cron("0 2 * * *", tz="Europe/Berlin")`."""
    return When(expression, tz)


def every(interval: Duration) -> When:
    """Create a schedule of an interval: `every("10s")`, not more often than every 100 ms."""
    if isinstance(interval, timedelta) and interval < _SHORTEST_INTERVAL:
        raise ValueError(f"the smallest interval is 100ms, not {interval.total_seconds():g}s")
    return When(f"every {duration_text(interval)}")


def document_of(options: JobOptions) -> dict[str, Any]:
    """Return the options as a job file has them."""
    document = {name: plain(value) for name, value in options.items()}
    if "schedule" in options:
        document |= _schedule(options["schedule"], options.get("timezone"))
    return document


def duration_text(duration: Duration) -> str:
    if isinstance(duration, str):
        return duration
    if not isinstance(duration, timedelta):
        raise TypeError(f'write a duration such as "10s" or a timedelta, not {duration!r}')
    seconds, micros = divmod(duration // _MICROSECOND, 1_000_000)
    return f"{seconds}.{micros:06}s" if micros else f"{seconds}s"


def _schedule(written: When | str | Sequence[When | str], timezone: str | None) -> dict[str, Any]:
    entries = [written] if isinstance(written, When | str) else list(written)
    whens = [entry if isinstance(entry, When) else When(entry) for entry in entries]
    zones = {when.tz for when in whens if when.tz} | ({timezone} if timezone else set())
    if len(zones) > 1:
        raise ValueError(f"a job has one time zone, not {' and '.join(sorted(zones))}")
    expressions = [when.expression for when in whens]
    schedule = {"schedule": expressions[0] if len(expressions) == 1 else expressions}
    return schedule | ({"timezone": zones.pop()} if zones else {})


def plain(value: object) -> Any:
    """Convert an option's value to the job file's form."""
    match value:
        case timedelta():
            return duration_text(value)
        case datetime():
            return value.isoformat()
        case Retry():
            fields = {name: getattr(value, name) for name in Retry.__dataclass_fields__}
            return {name: plain(each) for name, each in fields.items() if each is not None}
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value
