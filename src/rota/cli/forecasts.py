"""`rota forecast`: what starts when, what it waits for, and what runs out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from cyclopts import Parameter

from rota.api.forecasts import (
    Forecast,
    ForecastAccuracy,
    ForecastStart,
    JobForecast,
    Load,
    Saturation,
    SlowRun,
)
from rota.cli import times
from rota.cli.options import EVERYBODY, REMOTE, AtMost, Duration, Remote, Whose
from rota.cli.printing import Column, print_one, write_table
from rota.cli.references import ask, complete_jobs
from rota.cli.terminal import Terminal, inert
from rota.sdk.client import Client

_KINDS = {"rate": "rate limit"}


def key_words(key: str) -> str:
    """Return `rate limit s3-put`, `another run with host=db-1 (exclusive_by)`."""
    kind, _, rest = key.partition(":")
    name = rest.partition("/")[2]
    if kind == "exclusive":
        return f"another run with {_values(name)} (exclusive_by)"
    return f"{_KINDS.get(kind, kind)} {name}"


def _values(name: str) -> str:
    """Return inputs and their values; only the names where the values are too long to be kept."""
    if not name.startswith("{"):
        return f"the same {name.partition('#')[0]}"
    return ", ".join(f"{input_}={value}" for input_, value in json.loads(name).items())


_MOST_SATURATIONS, _MOST_SLOW = 10, 10
_LONG = "running longer than usual"
_NEVER = "not in this window,"


def write_forecast(terminal: Terminal, ahead: Forecast, present: datetime, limit: int) -> None:
    """Print starts, the peak, saturated resources, and how accurate the forecast is."""
    shown = ahead.runs or ahead.jobs
    if ahead.runs:
        write_table(terminal, _starts(present), ahead.runs[:limit])
    elif ahead.jobs:
        slow = {run.job for run in ahead.slow}
        write_table(terminal, _jobs(present, slow), ahead.jobs[:limit])
    else:
        terminal.tell("nothing starts in that time")
    if len(shown) > limit:
        terminal.tell(f"the first {limit:,}; more with --limit")
    terminal.write(_peak(ahead.load, present))
    for saturation in ahead.saturations[:_MOST_SATURATIONS]:
        terminal.write(inert(_saturation(saturation, present)))
    if len(ahead.saturations) > _MOST_SATURATIONS:
        terminal.tell(f"and {len(ahead.saturations) - _MOST_SATURATIONS:,} more times")
    for run in ahead.slow[:_MOST_SLOW]:
        terminal.write(inert(_slow(run, present)))
    for note in _notes(ahead):
        terminal.tell(note)


def write_quiet(terminal: Terminal, ahead: Forecast, present: datetime) -> None:
    """Print the times with the most room for one more job."""
    quiet = ahead.load.quiet
    if not quiet.minutes:
        terminal.tell("look further ahead: --for 1h at least, --for 24h for times of the day")
        return
    minutes = " ".join(f":{minute:02}" for minute in quiet.minutes)
    terminal.write(f"quiet minutes of the hour: {minutes}")
    if quiet.times:
        day = " ".join(sorted(_of_day(text, present) for text in quiet.times))
        terminal.write(f"quiet times of the day ({times.zone_mark(present)}): {day}")


def _heading(present: datetime) -> str:
    return f"START ({times.zone_mark(present)})"


def _jobs(present: datetime, slow: Collection[str]) -> tuple[Column[JobForecast], ...]:
    return (
        Column(_heading(present), lambda job: _start(job.first_start_at, present)),
        Column("JOB", lambda job: f"{job.job} ×{job.starts:,}" if job.starts > 1 else job.job),
        Column("TAKES", _takes),
        Column("WAITS", _job_waits),
        Column("NOTE", lambda job: job.remark or (_LONG if job.job in slow else "")),
    )


def _starts(present: datetime) -> tuple[Column[ForecastStart], ...]:
    return (
        Column(_heading(present), lambda run: _start(run.start_at, present)),
        Column("DUE", lambda run: times.clock(run.due_at, present)),
        Column("RUN", lambda run: run.run or "–", is_id=True),
        Column("WAITS", _start_waits),
        Column("NOTE", lambda run: run.remark),
    )


def _start(at: datetime | None, present: datetime) -> str:
    return "later" if at is None else times.clock(at, present)


def _of_day(text: str, present: datetime) -> str:
    """Convert a time of the day in UTC, such as `02:30`, to the reader's clocks."""
    hour, minute = map(int, text.split(":"))
    return f"{times.here(present.replace(hour=hour, minute=minute)):%H:%M}"


def _takes(job: JobForecast) -> str:
    mark = " (guessed)" if job.expected.source == "guess" else ""
    return f"~{times.length(job.expected.usual_seconds)}{mark}"


def _job_waits(job: JobForecast) -> str:
    if not job.waits_for:
        return ""
    if not job.unplaced:
        return f"{times.length(job.longest_wait_seconds)} for {_what(job.waits_for)}"
    some = "" if job.unplaced == job.starts else f"{job.unplaced:,} "
    return f"{some}{_never(job.waits_for)}"


def _start_waits(run: ForecastStart) -> str:
    if not run.waits_for:
        return ""
    wait = run.wait_seconds
    if wait is None:
        return _never(run.waits_for)
    return f"{times.length(wait)} for {_what(run.waits_for)}"


def _never(waits_for: str) -> str:
    """Say that the wait never ends; workers may have room, but not for this run."""
    which = " that can take it" if waits_for.startswith("worker:") else ""
    return f"{_NEVER} for {_what(waits_for)}{which}"


def _what(waits_for: str) -> str:
    """Return `a worker of pool default`, `rate limit s3-put`."""
    kind, _, name = waits_for.partition(":")
    match kind:
        case "worker":
            return f"a worker of pool {name}"
        case "job":
            return "another run of its job"
        case "after":
            return f"{name.partition('/')[2]} to complete"
        case _:
            return key_words(waits_for)


def _peak(load: Load, present: datetime) -> str:
    at = times.clock(load.peak.at, present)
    return f"peak {load.peak.amount:g} of {load.capacity:g} {inert(load.measure)} at {at}"


def _saturation(found: Saturation, present: datetime) -> str:
    runs = "1 run waits" if found.waiting == 1 else f"{found.waiting:,} runs wait"
    span = f"{times.clock(found.begins_at, present)}–{times.clock(found.ends_at, present)}"
    names = ", ".join(found.jobs)
    return f"! {span}  {runs}{_how_long(found)} for {_what(found.what)}: {names}"


def _how_long(found: Saturation) -> str:
    if not found.unplaced:
        return f" up to {times.length(found.longest_wait_seconds)}"
    is_all = found.unplaced == found.waiting
    return " beyond this window" if is_all else f", {found.unplaced:,} of them beyond this window,"


def _slow(run: SlowRun, present: datetime) -> str:
    so_far = times.length((present - run.started_at).total_seconds())
    usual, end = times.length(run.expected.usual_seconds), times.clock(run.ends_at, present)
    return f"! {run.job} is {_LONG}: {so_far} so far, not ~{usual}; taken to end at {end}"


def _notes(ahead: Forecast) -> Iterator[str]:
    if ahead.cut:
        yield "there is more to come than was looked at: this is what comes first"
    yield from _trust(ahead.accuracy) if ahead.accuracy else ()
    guessed = _guessed(ahead.jobs)
    if guessed:
        yield f"{guessed} without history or expect: taken to last 1 s"


def _trust(accuracy: ForecastAccuracy) -> Iterator[str]:
    share = accuracy.near / accuracy.starts
    yield (
        f"of {accuracy.starts:,} starts predicted in the last day {share:.0%} came within 2 s or"
        f" 10 %; half of them within {times.length(accuracy.usual_error_seconds)}"
    )


def _guessed(jobs: Sequence[JobForecast]) -> str:
    count = sum(job.expected.source == "guess" for job in jobs)
    return "" if not count else "1 job is" if count == 1 else f"{count:,} jobs are"


_DAY = timedelta(days=1)


def forecast(
    *,
    for_: Annotated[
        Duration,
        Parameter(
            name="--for",
            help="How far to look: 5m, 24h, at most 7d. Default: 24h.",
            show_default=False,
        ),
    ] = _DAY,
    resource: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="What may run out: slots, cpu, a named resource, a rate limit. Default: slots.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        Parameter(metavar="NAME", help="Every start of this job alone.", completer=complete_jobs),
    ] = None,
    quiet: Annotated[bool, Parameter(help="Where one more job would find room.")] = False,
    whose: Whose = EVERYBODY,
    limit: AtMost = 50,
    remote: Remote = REMOTE,
) -> None:
    """Show what is coming: starts, waits, and what runs out.

    Due times, carts and waiting runs are placed on the workers that are there now, by the rules
    that schedule them, with the durations of earlier runs. It changes and delays nothing.
    """
    call = Client.forecast(for_, measure=resource, job=job, created_by=whose.creator)
    with remote.connect() as client:
        found = ask(client, call)
    print_one(
        remote,
        found,
        name=lambda ahead: "\n".join(entry.job for entry in ahead.jobs),
        page=lambda terminal, ahead: (
            write_quiet(terminal, ahead, times.now())
            if quiet
            else write_forecast(terminal, ahead, times.now(), limit)
        ),
    )
