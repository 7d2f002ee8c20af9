"""The coming starts: due times of schedules as firing would answer them, and what follows others.

Successors are intervals from completion, `after`, and carts.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from operator import itemgetter, sub

from rota.domain.calendars.blackout import Allowed, Blackout, ReleasedAt, SkippedBy, blackout_answer
from rota.domain.firing import fold, next_start, pieces_of
from rota.domain.forecast.ahead import JobAhead, RunAhead
from rota.domain.gates import after_key
from rota.domain.ids import CartId, JobId, instant, micros
from rota.domain.schedule import Timetable
from rota.domain.schedule.expressions import DueSource
from rota.domain.schedule.zoned_cron import ZonedCron
from rota.domain.spec import Overlap

MOST_OF_ONE = 20_000  # due times of one schedule; of more, those that come first
_MICROS = 1_000_000
_DROPPING = (Overlap.SKIP, Overlap.QUEUE_ONE)  # rules under which due times come to nothing


@dataclass(frozen=True, slots=True)
class Coming:
    """Schedule by which a job comes by itself."""

    table: Timetable
    cursor: datetime  # the first due time that has no answer yet
    blackouts: tuple[Blackout, ...] = ()


@dataclass(frozen=True, slots=True)
class Expanded:
    """The starts of one schedule, in microseconds since 1970."""

    due: Sequence[int]
    ready: Sequence[int]  # when each may start: shifted by calendars, spread and jitter
    is_cut: bool = False  # there are more than were wanted


def expand(coming: Coming, through: datetime) -> Expanded:
    """Expand a schedule to all starts from its cursor on whose time comes by then.

    Of a schedule that waits for the end of each run, only the first.
    """
    if coming.cursor > through:
        return Expanded((), ())
    table = coming.table
    if table.run_once or table.after_previous:
        return _first(coming, through)
    end = _end(table, micros(coming.cursor), micros(through))
    due, ready = _due_times(coming, end)
    if table.spread or table.jitter:
        shifts = [micros(table.release_at(instant(each))) - each for each in due]
        ready = [at + shift for at, shift in zip(ready, shifts, strict=True)]
    return Expanded(due, ready, end < micros(through))


def drop_overlapping(expanded: Expanded, overlap: Overlap, seconds: float) -> Expanded:
    """Drop the due times that would find a run of their job still going.

    As if each started at once: what the overlap rule then skips or replaces never comes about.
    """
    length = int(seconds * _MICROS)
    if overlap not in _DROPPING or not _overlaps(expanded.ready, length):
        return expanded
    keeps = _unskipped if overlap is Overlap.SKIP else _newest
    kept = [*keeps(expanded.ready, length)]
    due, ready = ([times[index] for index in kept] for times in (expanded.due, expanded.ready))
    return Expanded(due, ready, expanded.is_cut)


def _first(coming: Coming, through: datetime) -> Expanded:
    start = next_start(coming.table, coming.blackouts, coming.cursor)
    if start is None or start.due > through:
        return Expanded((), ())
    shift = coming.table.release_at(start.due) - start.due
    return Expanded([micros(start.due)], [micros(start.not_before + shift)])


def _due_times(coming: Coming, end: int) -> tuple[list[int], list[int]]:
    """Return the due times that run, and when calendars let each."""
    if not coming.blackouts:
        first = micros(coming.cursor)
        due = [first, *coming.table.all_in(first, end)]
        return due, due
    pairs = [*_allowed(coming, end)]
    return [due for due, _ in pairs], [ready for _, ready in pairs]


def _allowed(coming: Coming, end: int) -> Iterator[tuple[int, int]]:
    table, blackouts = coming.table, coming.blackouts
    pieces = list(pieces_of(table, blackouts, coming.cursor, instant(end)))
    following = table.next_after(instant(end))
    answer = blackout_answer(blackouts, following) if following else Allowed()
    for piece in reversed([*fold(pieces, answer, table.last_at_or_before)]):
        match piece.answer:
            case Allowed():
                first, last = micros(piece.first), micros(piece.last)
                yield first, first
                yield from ((due, due) for due in table.all_in(first, last))
            case ReleasedAt(at):
                yield micros(piece.last), micros(at)
            case SkippedBy():
                pass


def _end(table: Timetable, cursor: int, through: int) -> int:
    """Return until when a schedule is expanded: a dense one not as far as it was asked for."""
    dense = [source for source in table.sources if not _is_by_minutes(source)]
    count = sum(source.count(cursor, through) for source in dense)
    if count <= MOST_OF_ONE:
        return through
    return cursor + (through - cursor) * MOST_OF_ONE // count


def _is_by_minutes(source: DueSource) -> bool:
    """Return whether it is never due so often that it must be counted beforehand."""
    return isinstance(source, ZonedCron) and len(source.cron.seconds) == 1


def _overlaps(ready: Sequence[int], length: int) -> bool:
    return len(ready) > 1 and min(map(sub, ready[1:], ready)) < length


def _unskipped(ready: Sequence[int], length: int) -> Iterator[int]:
    """Yield those that find nothing of their job going."""
    free_at = 0
    for index, at in enumerate(ready):
        if at >= free_at:
            free_at = at + length
            yield index


def _newest(ready: Sequence[int], length: int) -> Iterator[int]:
    """Yield those that find nothing going, and the last of each group that waits for the one
    before.

    A waiting one that is replaced by a newer never starts.
    """
    free_at = 0
    waiting: int | None = None
    for index, at in enumerate(ready):
        if waiting is not None and at >= free_at:
            yield waiting
            free_at, waiting = free_at + length, None
        if at >= free_at:
            free_at = at + length
            yield index
        else:
            waiting = index
    if waiting is not None:
        yield waiting


@dataclass(frozen=True, slots=True)
class DueRun:
    """Due run, as it would come if it had to wait for nobody."""

    run: RunAhead
    since: float  # the due time before: whoever has completed later need not do so again
    missed_at: float = inf  # when it waits no longer, and is MISSED; infinity: never


@dataclass(frozen=True, slots=True)
class DueSeries:
    """Due runs of a job that follows others, in order."""

    upstreams: Sequence[str]  # keys, see `after_key`
    overlap: Overlap
    runs: Sequence[DueRun]  # by `since`
    completed: Mapping[str, float] = field(default_factory=dict)  # the last time; missing: never
    within: float = inf  # how long runs that are still to be made wait
    free_at: float = -inf  # when the run before these has ended


def split_released(series: DueSeries) -> tuple[list[RunAhead], DueSeries]:
    """Split off the runs that wait for no upstream from all others."""
    progress = SeriesProgress(series)
    released = [*progress.release()]
    return released, replace(series, runs=tuple(progress.waiting), free_at=progress.free_at)


class SeriesProgress:
    """Progress of a series: releases its runs as their upstreams complete."""

    def __init__(self, series: DueSeries) -> None:
        self._series = series
        self._ends = {key: _known_ends(series.completed.get(key)) for key in series.upstreams}
        self.waiting = deque(series.runs)
        self.free_at = series.free_at
        self._missed: list[RunAhead] = []

    def complete(self, upstream: str, at: float) -> Iterator[RunAhead]:
        """Note when an upstream completes; yield the runs that need not wait longer."""
        insort(self._ends[upstream], at)
        return self.release()

    def expect(self, run: RunAhead, since: float) -> Iterator[RunAhead]:
        """Append one more run, the last so far."""
        self.waiting.append(DueRun(run, since, run.ready_at + self._series.within))
        return self.release()

    def release(self) -> Iterator[RunAhead]:
        """Yield the runs for which all upstreams have a known completion."""
        known_to = min(ends[-1] for ends in self._ends.values())
        while self.waiting and self.waiting[0].since < known_to:
            due = self.waiting.popleft()
            key, at = max(self._completions(due.since), key=itemgetter(1))
            if (run := self._passed(due, key, at)) is not None:
                yield run

    def left(self) -> list[RunAhead]:
        """List the runs whose upstreams do not complete in time: they do not start."""
        while self.waiting:
            due = self.waiting.popleft()
            lacks = next(key for key, ends in self._ends.items() if ends[-1] <= due.since)
            self._passed(due, lacks, inf)
        return self._missed

    def _completions(self, since: float) -> Iterator[tuple[str, float]]:
        for key, ends in self._ends.items():
            yield key, ends[bisect_right(ends, since)]

    def _passed(self, due: DueRun, upstream: str, at: float) -> RunAhead | None:
        """Return the run that need not wait any more from then on; None: it will never start."""
        run = replace(due.run)
        if at > run.ready_at:
            run.held_until, run.waits_for = at, upstream
        if self._is_dropped(due, run):
            return None
        if at == inf or at > max(run.ready_at, due.missed_at):
            self.free_at = max(self.free_at, due.missed_at)
            self._missed.append(run)
            return None
        self.free_at = max(self.free_at, run.arrives_at) + run.seconds
        if self._series.overlap is Overlap.CANCEL_PREVIOUS and self.waiting:
            run.seconds = min(run.seconds, self._next_at - run.arrives_at)
        return run

    @property
    def _next_at(self) -> float:
        return self.waiting[0].run.ready_at if self.waiting else inf

    def _is_dropped(self, due: DueRun, run: RunAhead) -> bool:
        """Return whether the overlap rule drops the run, as if each started at once."""
        waited = min(run.arrives_at, due.missed_at)
        match self._series.overlap:
            case Overlap.SKIP:
                return run.ready_at < self.free_at
            case Overlap.QUEUE_ONE:
                return self._is_replaced(run, max(waited, self.free_at))
            case Overlap.CANCEL_PREVIOUS:
                return self._is_replaced(run, waited)
            case Overlap.QUEUE_ALL | Overlap.ALLOW:
                return False

    def _is_replaced(self, run: RunAhead, waits_until: float) -> bool:
        """Return whether the next one comes while it waits."""
        return run.ready_at < waits_until and self._next_at < waits_until


def _known_ends(completed: float | None) -> list[float]:
    """Return the known ends of an upstream, preceded by one that helps nobody."""
    return [-inf] if completed is None else [-inf, completed]


@dataclass(frozen=True, slots=True)
class CartAhead:
    """Rest of a cart that is still to do."""

    id: CartId
    job: JobAhead  # of its items
    waves: Sequence[int]  # items that have no run yet, by wave, from the current one on
    window: int  # how many may be in flight
    wait: float = 0.0  # seconds between two waves
    open: int = 0  # items that have a run which is not final


@dataclass(frozen=True, slots=True)
class Sequels:
    """Relations by which runs follow others."""

    again: Mapping[JobId, Callable[[float], float | None]] = field(default_factory=dict)
    followers: Mapping[JobId, Sequence[JobAhead]] = field(default_factory=dict)
    due_series: Mapping[JobId, DueSeries] = field(
        default_factory=dict
    )  # of jobs with due times of their own
    carts: Sequence[CartAhead] = ()

    @property
    def are_any(self) -> bool:
        return bool(self.again or self.followers or self.due_series or self.carts)


class Following:
    """Implementation of `Successors`; tracks how far carts are, and which runs still wait."""

    def __init__(self, sequels: Sequels) -> None:
        self._sequels = sequels
        self._series = {job: SeriesProgress(series) for job, series in sequels.due_series.items()}
        self._followed: dict[str, list[SeriesProgress]] = defaultdict(list)
        for job, series in sequels.due_series.items():
            for upstream in series.upstreams:
                self._followed[upstream].append(self._series[job])
        self._carts = {cart.id: _CartProgress(cart) for cart in sequels.carts}

    def follow(self, run: RunAhead) -> Sequence[RunAhead]:
        job = run.job
        found = [*self._after(run)]
        if job.cart is not None:
            found += self._carts[job.cart].follow(run) if job.cart in self._carts else ()
        elif (again := self._sequels.again.get(job.id)) and (due := again(run.end_at)) is not None:
            found += self._again(run, due)
        return found

    def left(self) -> Sequence[RunAhead]:
        return [run for series in self._series.values() for run in series.left()]

    def _after(self, run: RunAhead) -> Iterator[RunAhead]:
        """Yield runs of the jobs that follow its own."""
        job, end = run.job, run.end_at
        yield from (_made(follower, end) for follower in self._sequels.followers.get(job.id, ()))
        upstream = after_key(job.project, job.name)
        for series in self._followed.get(upstream, ()):
            yield from series.complete(upstream, end)

    def _again(self, run: RunAhead, at: float) -> Iterable[RunAhead]:
        """Return the next run of its job."""
        following, series = _made(run.job, at), self._series.get(run.job.id)
        return [following] if series is None else series.expect(following, since=run.due_at)


def first_items(cart: CartAhead, at: float) -> list[RunAhead]:
    """Return the items with which a cart goes on that has nothing open."""
    return [_made(cart.job, at) for _ in range(min(cart.window, cart.waves[0]))]


class _CartProgress:
    """Progress of a cart's items: wave after wave, in each as many at once as may be."""

    def __init__(self, cart: CartAhead) -> None:
        self._cart = cart
        self._wave = 0
        self._released = cart.open or min(cart.window, cart.waves[0])  # and not started yet
        self._left = cart.waves[0] - (0 if cart.open else self._released)
        self._last_end = 0.0

    def follow(self, run: RunAhead) -> list[RunAhead]:
        """Return the next item of the wave, which comes when this one, just started, ends."""
        self._last_end = max(self._last_end, run.end_at)
        self._released -= 1
        if self._left > 0:
            self._left -= 1
            self._released += 1
            return [_made(self._cart.job, run.end_at)]
        return [] if self._released else self._next_wave()

    def _next_wave(self) -> list[RunAhead]:
        """Return the next wave: all items of this one have started, so that its end is known."""
        self._wave += 1
        if self._wave >= len(self._cart.waves):
            return []
        count = self._cart.waves[self._wave]
        self._released = min(self._cart.window, count)
        self._left = count - self._released
        opens_at = self._last_end + self._cart.wait
        return [_made(self._cart.job, opens_at) for _ in range(self._released)]


def _made(job: JobAhead, at: float) -> RunAhead:
    return RunAhead(job, at, job.open_from(at), job.durations.usual)
