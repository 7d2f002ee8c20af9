"""Tables and pages of jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rota.cli import times
from rota.cli.failures import counted
from rota.cli.printing import Column, ListView, write_pairs
from rota.cli.terminal import Terminal, inert
from rota.sdk.answers import (
    Answered,
    CalendarEffect,
    Job,
    JobDetail,
    LedgerEntry,
    MovedJob,
    RunDetail,
    Schedule,
    Upcoming,
)

_NOTHING = "–"
_ON_DEMAND = "on demand"


def _words(job: Job) -> str:
    # A server of an earlier version tells names only.
    followed = [each.words for each in job.after] or job.follows
    after = f"after {', '.join(followed)}" if followed else ""
    when = [part for part in (job.schedule.words if job.schedule else "", after) if part]
    if when:
        return ", ".join(when)
    return _NOTHING if job.status == _ON_DEMAND else _ON_DEMAND  # once is enough


def _next(job: Job) -> str:
    return times.due(job.next_at, times.now())


def _last(job: Job) -> str:
    if job.last_state is None:
        return "never run"
    if job.last_ended_at is None:
        return job.last_state.lower()
    return f"{job.last_state.lower()} {times.relative(job.last_ended_at, times.now())}"


def _short_last(job: Job) -> str:
    if job.last_state is None or job.last_ended_at is None:
        return _last(job)
    return f"{job.last_state.lower()} {times.ago(job.last_ended_at, times.now())}"


def _labels(job: Job) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(job.labels.items())) or _NOTHING


JOBS: ListView[Job] = ListView(
    columns=(
        Column("NAME", lambda job: job.name, is_whole=True),
        Column("STATUS", lambda job: job.status),
        Column("SCHEDULE", _words, is_note=True),
        Column(
            "NEXT",
            _next,
            narrower=[
                lambda job: times.moment(job.next_at, times.now()),
                lambda job: times.distance(job.next_at, times.now()),
            ],
        ),
        Column("LAST", _last, narrower=[_short_last]),
        Column("ID", lambda job: job.id, is_whole=True, only_wide=True),
        Column("VERSION", lambda job: str(job.version), only_wide=True),
        Column("TITLE", lambda job: job.title or _NOTHING, only_wide=True),
        Column("OWNER", lambda job: job.owner or _NOTHING, only_wide=True),
        Column("LABELS", _labels, only_wide=True),
    ),
    name=lambda job: job.name,
    empty="no jobs; define some with: rota apply FILE",
)


def span(first: datetime, last: datetime) -> str:
    """Format a range of due times, or the only one."""
    if first == last:
        return times.absolute(first)
    begin, end = times.here(first), times.here(last)
    if (begin.date(), begin.tzname()) == (end.date(), end.tzname()):  # one date and zone will do
        return f"{begin:%Y-%m-%d %H:%M:%S} … {times.stamp(last, first)}"
    return f"{times.absolute(first)} … {times.absolute(last)}"


def _short_span(first: datetime, last: datetime) -> str:
    """Format a range over several days to the minute, and its zone once."""
    begin, end = times.here(first), times.here(last)
    if begin.date() == end.date() or begin.tzname() != end.tzname():
        return span(first, last)
    return f"{begin:%Y-%m-%d %H:%M} … {end:%Y-%m-%d %H:%M} {times.zone_mark(last)}"


def _cause(entry: LedgerEntry) -> str:
    return ", ".join(text for text in (entry.cause, _backfilled(entry)) if text) or _NOTHING


def _backfilled(entry: LedgerEntry) -> str:
    """Return who made up for a due time, without the run that has its own column."""
    others = [run for run in entry.backfilled_by if run != entry.run]
    if others:
        return f"backfilled by {', '.join(others)}"
    return "backfilled" if entry.backfilled_by else ""


LEDGER: ListView[LedgerEntry] = ListView(
    columns=(
        Column(
            "DUE",
            lambda entry: span(entry.first, entry.last),
            narrower=[lambda entry: _short_span(entry.first, entry.last)],
        ),
        Column("COUNT", lambda entry: f"{entry.count:,}"),
        Column("STATE", lambda entry: entry.state.lower(), is_state=True),
        Column("CAUSE", _cause, is_note=True),
        Column("RUN", lambda entry: entry.run or _NOTHING, is_id=True),
    ),
    name=lambda entry: entry.run or times.absolute(entry.first),
    empty="no due times yet",
)


def ledger_of(first: datetime | None, last: datetime | None) -> ListView[LedgerEntry]:
    """Return the view of a range; where it has no due times, the range as it was taken is told."""
    if first is None and last is None:
        return LEDGER
    return replace(LEDGER, empty=f"no due times {range_words(first, last)}")


def range_words(first: datetime | None, last: datetime | None) -> str:
    """Format `from 2026-03-01 12:00:00 UTC to 2026-03-02 12:00:00 UTC`, or what is given of it."""
    ends = (("from", first), ("to", last))
    return " ".join(f"{word} {times.absolute(at)}" for word, at in ends if at is not None)


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


def write_skip(terminal: Terminal, job: MovedJob) -> None:
    """Print which due time was skipped, and the one after it."""
    skipped = times.absolute(job.answered[-1].last) if job.answered else "its next due time"
    after = times.due(job.next_at, times.now())
    terminal.tell(f"job {inert(job.name)} skips {skipped}; the next one that runs is {after}")


def write_moved(terminal: Terminal, job: MovedJob, done: str) -> None:
    """Print that a job was paused, resumed, …, and what that left out."""
    until = f" until {times.absolute(job.paused_until)}" if job.paused_until else ""
    terminal.tell(f"{done} job {inert(job.name)}{until}")
    left_out = sum(stretch.count for stretch in job.answered if stretch.state == "SKIPPED")
    if left_out:
        since = job.answered[0].first.isoformat().replace("+00:00", "Z")
        terminal.tell(
            f"  {counted(left_out, 'due time')} left out meanwhile; to run them after all:"
        )
        terminal.tell(inert(f"  rota job backfill {job.name} --from {since} --only missing"))


def _later(job: Job, upcoming: Upcoming) -> list[datetime]:
    """Return the due times after the next one, without those that calendars skip."""
    skipped = {effect.due for effect in upcoming.calendars if effect.released_at is None}
    first = job.next_at
    return [time for time in upcoming.times if time not in skipped and (not first or time > first)]


def _zone(job: JobDetail) -> str:
    """Return the schedule's zone if its clocks show another time than the reader's."""
    if job.schedule is None or job.next_at is None:
        return ""
    here = times.here(job.next_at)
    if here.utcoffset() == job.next_at.utcoffset():
        return ""
    return f"{job.schedule.timezone}; times are shown in {times.zone_mark(job.next_at)}"


def _answered(stretch: Answered) -> str:
    return f"{span(stretch.first, stretch.last)} ({stretch.cause})"


def _release(schedule: Schedule) -> str:
    """Describe how spread and jitter shift the starts of runs, never their due times."""
    parts = []
    if schedule.spread_seconds:
        parts.append(f"{times.length(schedule.spread_seconds)} after the due time (spread)")
    if schedule.jitter_seconds:
        parts.append(f"up to {times.length(schedule.jitter_seconds)} later (jitter)")
    return ", ".join(parts)


def _effect(effect: CalendarEffect) -> str:
    what = "skipped" if effect.released_at is None else f"runs {times.absolute(effect.released_at)}"
    return f"calendar {effect.calendar}: {times.absolute(effect.due)} is inside, {what}"


def walls_words(shown: Job | RunDetail) -> str:
    """Format `sandbox · network outbound · as reports · at most cpu 2, memory 512MiB`."""
    limits = ", ".join(f"{name.replace('_', ' ')} {most}" for name, most in shown.limits.items())
    parts = (
        shown.isolation,
        shown.image,
        f"network {shown.network}" if shown.isolation != "process" else "",
        f"as {shown.run_as}" if shown.run_as else "",
        f"at most {limits}" if limits else "",
    )
    return " · ".join(part for part in parts if part)


def write_job(terminal: Terminal, job: JobDetail, upcoming: Upcoming, present: datetime) -> None:
    """Print a job on one page, its definition last."""
    expected = job.expected_seconds
    write_pairs(
        terminal,
        [
            ("job", f"{job.name} ({job.id}, version {job.version})"),
            ("title", job.title),
            ("description", job.description),
            ("status", _status(job, present)),
            ("schedule", _words(job)),
            ("isolation", walls_words(job)),
            ("type", ", ".join(job.schedule.kinds) if job.schedule else ""),
            ("next", times.due(job.next_at, present)),
            ("then", " · ".join(map(times.absolute, _later(job, upcoming)))),
            ("time zone", _zone(job)),
            ("skipped", " · ".join(map(_answered, upcoming.answered))),
            ("released", _release(job.schedule) if job.schedule else ""),
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
        terminal.write(f"  clocks: {inert(change.text)}")
    terminal.write()
    for line in job.yaml.rstrip("\n").split("\n"):
        terminal.write(inert(line))
