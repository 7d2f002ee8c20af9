"""Jobs as tables and pages."""

from __future__ import annotations

from datetime import datetime

from rota.cli import times
from rota.cli.inert import inert
from rota.cli.printing import ListView
from rota.cli.table import Column, write_pairs
from rota.cli.terminal import Terminal
from rota.sdk.answers import CalendarEffect, Job, JobDetail, LedgerEntry, Upcoming

_NOTHING = "–"
_ON_DEMAND = "on demand"


def _words(job: Job) -> str:
    if job.schedule:
        return job.schedule.words
    return _NOTHING if job.status == _ON_DEMAND else _ON_DEMAND  # once is enough


def _next(job: Job) -> str:
    return times.moment(job.next_at, times.now())


def _last(job: Job) -> str:
    if job.last_state is None:
        return "never run"
    if job.last_ended_at is None:
        return job.last_state.lower()
    return f"{job.last_state.lower()} {times.relative(job.last_ended_at, times.now())}"


def _labels(job: Job) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(job.labels.items())) or _NOTHING


JOBS: ListView[Job] = ListView(
    columns=(
        Column("NAME", lambda job: job.name, is_whole=True),
        Column("STATUS", lambda job: job.status),
        Column("SCHEDULE", _words),
        Column("NEXT", _next),
        Column("LAST", _last),
        Column("ID", lambda job: job.id, is_whole=True, only_wide=True),
        Column("VERSION", lambda job: str(job.version), only_wide=True),
        Column("OWNER", lambda job: job.owner or _NOTHING, only_wide=True),
        Column("LABELS", _labels, only_wide=True),
    ),
    name=lambda job: job.name,
    empty="no jobs; define some with: rota apply FILE",
)


def _span(entry: LedgerEntry) -> str:
    first = times.absolute(entry.first)
    return first if entry.first == entry.last else f"{first} … {times.absolute(entry.last)}"


def _cause(entry: LedgerEntry) -> str:
    backfilled = f"backfilled by {', '.join(entry.backfilled_by)}" if entry.backfilled_by else ""
    return ", ".join(text for text in (entry.cause, backfilled) if text) or _NOTHING


LEDGER: ListView[LedgerEntry] = ListView(
    columns=(
        Column("DUE", _span),
        Column("COUNT", lambda entry: f"{entry.count:,}"),
        Column("STATE", lambda entry: entry.state.lower(), is_state=True),
        Column("CAUSE", _cause),
        Column("RUN", lambda entry: entry.run or _NOTHING, is_whole=True),
    ),
    name=lambda entry: entry.run or times.absolute(entry.first),
    empty="no due times yet",
)


def _status(job: Job, present: datetime) -> str:
    if job.stuck_since is not None and job.status == "stuck":
        since = times.relative(job.stuck_since, present)
        return f"stuck {since}: rota run list --active --job {job.name}"
    words = f"{job.status} by {job.paused_by}" if job.paused_by else job.status
    return f"{words} until {times.absolute(job.paused_until)}" if job.paused_until else words


def _lateness(job: JobDetail) -> str:
    if job.lateness is None:
        return ""
    late = job.lateness
    marks = (("p50", late.p50), ("p95", late.p95), ("p99", late.p99))
    figures = " · ".join(f"{times.length(seconds)} ({mark})" for mark, seconds in marks)
    return f"{figures} of the last {late.count}"


def write_skip(terminal: Terminal, job: Job) -> None:
    """What a skip left: the due time after it."""
    due = times.moment(job.next_at, times.now())
    terminal.tell(f"skipped a due time of job {inert(job.name)}; the next one is {due}")


def _effect(effect: CalendarEffect) -> str:
    what = "skipped" if effect.released_at is None else f"runs {times.absolute(effect.released_at)}"
    return f"calendar {effect.calendar}: {times.absolute(effect.due)} is inside, {what}"


def write_job(terminal: Terminal, job: JobDetail, upcoming: Upcoming, present: datetime) -> None:
    """A job on one page, its definition last."""
    expected = job.expected_seconds
    write_pairs(
        terminal,
        [
            ("job", f"{job.name} ({job.id}, version {job.version})"),
            ("description", job.description),
            ("status", _status(job, present)),
            ("schedule", _words(job)),
            ("next", times.moment(job.next_at, present)),
            ("then", " · ".join(times.absolute(time) for time in upcoming.times[1:])),
            ("calendars", ", ".join(job.schedule.calendars) if job.schedule else ""),
            ("last", _last(job)),
            ("usually takes", times.length(expected) if expected is not None else ""),
            ("starts late by", _lateness(job)),
            ("owner", job.owner),
            ("labels", _labels(job) if job.labels else ""),
            ("set", job.set or ""),
            ("created by", job.created_by),
        ],
    )
    for effect in upcoming.calendars:
        terminal.write(f"  {inert(_effect(effect))}")
    if upcoming.problem:
        terminal.write(f"  it does not fire: {inert(upcoming.problem)}")
    for change in upcoming.clock_changes:
        terminal.write(f"  clocks: {inert(change)}")
    terminal.write()
    for line in job.yaml.rstrip("\n").split("\n"):
        terminal.write(inert(line))
