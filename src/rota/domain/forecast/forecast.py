"""Forecast as a whole: coming starts, shortages, and the accuracy of earlier forecasts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from math import inf

from rota.domain.forecast.ahead import JOB_GATE, WORKER_GATE, RunAhead, Setting, Source
from rota.domain.gates import AFTER
from rota.domain.ids import JobId
from rota.domain.keys import KeyKind
from rota.domain.schedule import Timetable, clock_remark

NOTICED_SECONDS = 1.0  # shorter waits are nobody's concern
_NAMED = 3  # jobs of each stretch


@dataclass(frozen=True, slots=True)
class Saturation:
    """A stretch in which runs wait for the same thing."""

    what: str  # `worker:POOL` or a key
    begins_at: float
    ends_at: float
    waiting: int  # runs that waited in it
    longest_wait: float
    jobs: Sequence[str]  # whose runs waited, the most frequent first
    unplaced: int = 0  # those that do not start in the time ahead


def saturations(runs: Iterable[RunAhead], until: float) -> list[Saturation]:
    """List the stretches in which runs wait for the same thing, in order.

    A job that keeps its own runs back is none of them, nor is one that others come after.
    """
    waits: dict[str, list[RunAhead]] = defaultdict(list)
    for run in runs:
        if _is_short(run) and run.wait > NOTICED_SECONDS:
            waits[shortage_of(run)].append(run)
    found = [span for what, each in waits.items() for span in _spans(what, each, until)]
    return sorted(found, key=lambda span: (span.begins_at, span.what))


def shortage_of(run: RunAhead) -> str:
    """Return the key of what a run waits for."""
    return f"{WORKER_GATE}:{run.job.pool}" if run.waits_for == WORKER_GATE else run.waits_for


def _is_short(run: RunAhead) -> bool:
    return run.waits_for not in ("", JOB_GATE) and not run.waits_for.startswith(AFTER)


def resource_of(shortage: str) -> str:
    """Return the pool or declaration that is short: `worker:POOL`, `rate:PROJECT/NAME`.

    "" for inputs that runs exclude one another by, which are as many as there are values.
    """
    if shortage.startswith(f"{KeyKind.EXCLUSIVE}:"):
        return ""
    return "/".join(shortage.split("/")[:2])  # without whom a limit has a bucket for


def _spans(what: str, waiting: Sequence[RunAhead], until: float) -> Iterator[Saturation]:
    """Yield stretches; waits that overlap are one."""
    lot: list[RunAhead] = []
    end = 0.0
    for run in sorted(waiting, key=lambda run: run.ready_at):
        if lot and run.ready_at > end:
            yield _span(what, lot, end, until)
            lot = []
        lot.append(run)
        end = max(end, min(run.waits_until, until))
    if lot:
        yield _span(what, lot, end, until)


def _span(what: str, lot: Sequence[RunAhead], end: float, until: float) -> Saturation:
    names = Counter(run.job.name for run in lot).most_common(_NAMED)
    longest = max(min(run.waits_until, until) - run.ready_at for run in lot)
    return Saturation(
        what=what,
        begins_at=lot[0].ready_at,
        ends_at=end,
        waiting=len(lot),
        longest_wait=longest,
        jobs=tuple(name for name, _ in names),
        unplaced=sum(run.start_at == inf and run.drop_at > until for run in lot),
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """The time ahead as it looked at a moment, of all projects."""

    made_at: datetime
    until: datetime
    runs: Sequence[RunAhead]  # whose time comes in it, by start; last those that do not start
    setting: Setting
    tables: Mapping[JobId, Timetable]
    is_cut: bool = False  # only a part of what is coming could be looked at
    accuracy: Accuracy | None = None  # of the forecasts before; None: nothing of them has started

    @property
    def seconds(self) -> float:
        return (self.until - self.made_at).total_seconds()

    def instant(self, seconds: float) -> datetime:
        return self.made_at + timedelta(seconds=seconds)

    def start_of(self, run: RunAhead) -> datetime | None:
        """Return the start of a run; None: not in the time ahead."""
        return None if run.start_at == inf else self.instant(run.start_at)

    def remark(self, run: RunAhead) -> str:
        """Return what a change of clocks does to its due time, or ""."""
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
    """Yield the runs of a project that are to start, or should, in begin ≤ time < end; by start."""
    for run in forecast.runs:
        at = run.start_at if run.start_at != inf else run.ready_at
        if begin <= at < end and run.job.project == project and not run.worker:
            yield run


def slow_runs(forecast: Forecast, project: str) -> Iterator[RunAhead]:
    """Yield live runs of a project that have lasted longer than usual, the oldest first."""
    for run in takewhile(lambda run: run.start_at <= 0, forecast.runs):
        if run.worker and run.job.project == project and _is_slow(run):
            yield run


def by_job(runs: Iterable[RunAhead], until: float) -> list[JobOutlook]:
    """Group runs by job, ordered by the first start."""
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
    """Return whether it lasts too long; without a known length nothing does."""
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


NEAR = timedelta(seconds=2)
NEAR_SHARE = 0.1  # of the time ahead that was looked into


@dataclass(frozen=True, slots=True)
class Outcome:
    """A start that was predicted, and when it came."""

    made_at: datetime
    predicted: datetime
    actual: datetime

    @property
    def error(self) -> timedelta:
        return abs(self.actual - self.predicted)

    @property
    def is_near(self) -> bool:
        """Return whether it was within 2 s, or within a tenth of the time that lay ahead."""
        return self.error <= max(NEAR, (self.actual - self.made_at) * NEAR_SHARE)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Predicted starts against real ones."""

    starts: int
    near: int
    usual_error: timedelta  # half of them were no more off than this
    high_error: timedelta  # nine in ten were no more off than this

    @property
    def share(self) -> float:
        """Fraction of predictions that were near."""
        return self.near / self.starts


def accuracy_of(outcomes: Iterable[Outcome]) -> Accuracy | None:
    """Compare predictions with starts; None: nothing predicted has started since."""
    known = list(outcomes)
    if not known:
        return None
    errors = sorted(each.error for each in known)
    return Accuracy(
        starts=len(known),
        near=sum(each.is_near for each in known),
        usual_error=errors[(len(errors) - 1) // 2],
        high_error=errors[(len(errors) - 1) * 9 // 10],
    )
