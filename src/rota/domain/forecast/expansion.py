"""The coming starts of schedules: due times, moved or ruled out as firing would do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import sub

from rota.domain.calendars.answers import Allowed, ReleasedAt, SkippedBy, blackout_answer
from rota.domain.calendars.blackout import Blackout
from rota.domain.firing.coming import next_start
from rota.domain.firing.pieces import fold, pieces_of
from rota.domain.ids import instant, micros
from rota.domain.schedule import Timetable
from rota.domain.schedule.expressions import DueSource
from rota.domain.schedule.zoned_cron import ZonedCron
from rota.domain.spec import Overlap

MOST_OF_ONE = 20_000  # due times of one schedule; of more, those that come first
_MICROS = 1_000_000
_DROPPING = (Overlap.SKIP, Overlap.QUEUE_ONE)  # rules under which due times come to nothing


@dataclass(frozen=True, slots=True)
class Coming:
    """When a job comes by itself."""

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
    """All starts of a schedule from its cursor on whose time comes by then.

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


def thinned(expanded: Expanded, overlap: Overlap, seconds: float) -> Expanded:
    """Without the due times that would find a run of their job still going.

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
    """The due times that run, and when calendars let each."""
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
    """Until when a schedule is expanded: a dense one not as far as it was asked for."""
    dense = [source for source in table.sources if not _is_by_minutes(source)]
    count = sum(source.count(cursor, through) for source in dense)
    if count <= MOST_OF_ONE:
        return through
    return cursor + (through - cursor) * MOST_OF_ONE // count


def _is_by_minutes(source: DueSource) -> bool:
    """Whether it is never due so often that it must be counted beforehand."""
    return isinstance(source, ZonedCron) and len(source.cron.seconds) == 1


def _overlaps(ready: Sequence[int], length: int) -> bool:
    return len(ready) > 1 and min(map(sub, ready[1:], ready)) < length


def _unskipped(ready: Sequence[int], length: int) -> Iterator[int]:
    """Those that find nothing of their job going."""
    free_at = 0
    for index, at in enumerate(ready):
        if at >= free_at:
            free_at = at + length
            yield index


def _newest(ready: Sequence[int], length: int) -> Iterator[int]:
    """Those that find nothing going, and the last of each lot that has to wait for the one before.

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
