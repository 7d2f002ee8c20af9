"""A forecast as a whole, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from math import inf

from rota.domain.forecast.ahead import RunAhead, Setting
from rota.domain.forecast.durations import Source
from rota.domain.forecast.saturation import NOTICED_SECONDS, shortage_of
from rota.domain.ids import JobId
from rota.domain.schedule import Timetable, clock_remark


@dataclass(frozen=True, slots=True)
class Forecast:
    """The time ahead as it looked at a moment, of all projects."""

    made_at: datetime
    until: datetime
    runs: Sequence[RunAhead]  # whose time comes in it, by start; last those that do not start
    setting: Setting
    tables: Mapping[JobId, Timetable]
    is_cut: bool = False  # only a part of what is coming could be looked at

    @property
    def seconds(self) -> float:
        return (self.until - self.made_at).total_seconds()

    def instant(self, seconds: float) -> datetime:
        return self.made_at + timedelta(seconds=seconds)

    def start_of(self, run: RunAhead) -> datetime | None:
        """None: not in the time ahead."""
        return None if run.start_at == inf else self.instant(run.start_at)

    def remark(self, run: RunAhead) -> str:
        """What a change of clocks does to its due time, or ""."""
        table = self.tables.get(run.job.id)
        is_due = run.id is None and run.job.cart is None
        return clock_remark(table, self.instant(run.due_at)) if table and is_due else ""


@dataclass(slots=True)
class JobOutlook:
    """The coming starts of one job, taken together."""

    first: RunAhead  # by start
    starts: int = 0
    longest_wait: float = 0.0
    waits_for: str = ""  # what the longest waits for
    unplaced: int = 0  # those that do not start in the time ahead


def coming_runs(forecast: Forecast, project: str, begin: float, end: float) -> Iterator[RunAhead]:
    """The runs of a project that are to start, or should, in begin ≤ time < end; by start."""
    for run in forecast.runs:
        at = run.start_at if run.start_at != inf else run.ready_at
        if begin <= at < end and run.job.project == project and not run.worker:
            yield run


def slow_runs(forecast: Forecast, project: str) -> Iterator[RunAhead]:
    """The runs of a project that go on and have lasted longer than usual, the oldest first."""
    for run in takewhile(lambda run: run.start_at <= 0, forecast.runs):
        if run.worker and run.job.project == project and _is_slow(run):
            yield run


def by_job(runs: Iterable[RunAhead], until: float) -> list[JobOutlook]:
    """One entry for each job, by its first start."""
    found: dict[JobId, JobOutlook] = {}
    for run in runs:
        entry = found.get(run.job.id)
        if entry is None:
            entry = found[run.job.id] = JobOutlook(run)
        entry.starts += 1
        if run.start_at - run.ready_at > entry.longest_wait:
            _note_wait(entry, run, until)
    return [*found.values()]


def _is_slow(run: RunAhead) -> bool:
    """Of what nobody knows the length of, nothing is too long."""
    known = run.job.durations
    return known.source is not Source.GUESS and -run.start_at > known.high


def _note_wait(entry: JobOutlook, run: RunAhead, until: float) -> None:
    is_unplaced = run.start_at == inf
    entry.unplaced += is_unplaced
    wait = min(run.start_at, until) - run.ready_at
    if wait > max(entry.longest_wait, NOTICED_SECONDS):
        entry.longest_wait, entry.waits_for = wait, shortage_of(run)
    elif is_unplaced and not entry.waits_for:  # its time comes last
        entry.waits_for = shortage_of(run)
