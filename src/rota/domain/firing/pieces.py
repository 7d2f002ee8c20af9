"""The due times of a stretch, cut where a calendar's answer to them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.calendars.answers import (
    Allowed,
    BlackoutAnswer,
    ReleasedAt,
    SkippedBy,
    blackout_answer,
)
from rota.domain.calendars.blackout import Blackout
from rota.domain.ids import instant, micros
from rota.domain.schedule.misfire import DueRange
from rota.domain.schedule.sources import SECOND_MICROS
from rota.domain.schedule.timetable import Timetable

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring due times with the same answer."""

    first: datetime
    last: datetime
    answer: BlackoutAnswer

    @property
    def is_open(self) -> bool:
        return not isinstance(self.answer, SkippedBy)


def pieces_of(
    timetable: Timetable, blackouts: Sequence[Blackout], cursor: datetime, until: datetime
) -> Iterator[Piece]:
    """All due times of cursor ≤ due ≤ until, in order; the cursor is due in any case.

    The effort grows with the number of windows, not with that of the due times.
    """
    second, limit = micros(cursor) // SECOND_MICROS, micros(until) // SECOND_MICROS + 1
    begin = cursor
    while second < limit:
        second = next_edge(blackouts, second, limit)
        end = min(instant(second * SECOND_MICROS) - _MICROSECOND, until)
        first = begin if begin == cursor else timetable.next_after(begin - _MICROSECOND)
        if first is not None and first <= end:
            last = max(timetable.last_at_or_before(end) or first, first)
            yield Piece(first, last, blackout_answer(blackouts, first))
        begin = end + _MICROSECOND


def fold(
    pieces: Sequence[Piece],
    following: BlackoutAnswer,
    last_at_or_before: Callable[[datetime], datetime | None],
) -> Iterator[Piece]:
    """The pieces from the last to the first; of those that wait for one end, only the last due
    time still does. `following` is the answer to the job's next due time after them."""
    taken = {following.at} if isinstance(following, ReleasedAt) else set()
    for piece in reversed(pieces):
        if not isinstance(piece.answer, ReleasedAt):
            yield piece
            continue
        rest: datetime | None = piece.last
        if piece.answer.at not in taken:
            taken.add(piece.answer.at)
            yield Piece(piece.last, piece.last, piece.answer)
            rest = _before_last(piece, last_at_or_before)
        if rest is not None:
            yield Piece(piece.first, rest, SkippedBy(piece.answer.name))


def fold_into_window(
    blackouts: Sequence[Blackout], due_times: Sequence[datetime], following: datetime | None
) -> tuple[BlackoutAnswer, ...]:
    """The answers to due times of one job, in order: of those that wait for one end, the last runs.

    `following` is the job's next due time after these, None if there is none. Where it waits for
    that end too, it runs in their stead.
    """
    pieces = [Piece(due, due, blackout_answer(blackouts, due)) for due in due_times]
    later = blackout_answer(blackouts, following) if following else Allowed()
    return tuple(piece.answer for piece in fold(pieces, later, lambda _: None))[::-1]


@dataclass(frozen=True, slots=True)
class OpenTimes:
    """Those due times of a timetable that no calendar rules out, as far as there are pieces."""

    timetable: Timetable
    pieces: tuple[Piece, ...]  # only open ones, in order

    @property
    def run_once(self) -> bool:
        return self.timetable.run_once

    def next_after(self, time: datetime) -> datetime | None:
        for piece in self.pieces:
            if time < piece.last:
                return piece.first if time < piece.first else self.timetable.next_after(time)
        return None

    def last_at_or_before(self, time: datetime) -> datetime | None:
        for piece in reversed(self.pieces):
            if time >= piece.first:
                return piece.last if time >= piece.last else self._last(time, piece)
        return None

    def count(self, after: datetime, through: datetime) -> int:
        return sum(
            self.timetable.count(max(after, piece.first - _MICROSECOND), min(through, piece.last))
            for piece in self.pieces
        )

    def one_offs(self, after: datetime, through: datetime) -> tuple[datetime, ...]:
        return tuple(
            due
            for due in self.timetable.one_offs(after, through)
            if any(piece.first <= due <= piece.last for piece in self.pieces)
        )

    def parts(self, stretch: DueRange) -> Iterator[DueRange]:
        """A stretch of these due times without those that lie between them and are ruled out."""
        for piece in self.pieces:
            first, last = max(piece.first, stretch.first), min(piece.last, stretch.last)
            if first <= last:
                yield DueRange(first, last, 1 + self.timetable.count(first, last))

    def piece_at(self, due: datetime) -> Piece:
        return next(piece for piece in self.pieces if due <= piece.last)

    def _last(self, time: datetime, piece: Piece) -> datetime:
        return max(self.timetable.last_at_or_before(time) or piece.first, piece.first)


def next_edge(blackouts: Sequence[Blackout], second: int, limit: int) -> int:
    """The first second after this one at which an answer may change; the limit at the latest."""
    return min((_edge(blackout, second, limit) for blackout in blackouts), default=limit)


def _edge(blackout: Blackout, second: int, limit: int) -> int:
    begin = blackout.begin_from(second, limit)
    edge = blackout.end_from(second, limit) if begin == second else begin
    return limit if edge is None else min(edge, limit)


def _before_last(
    piece: Piece, last_at_or_before: Callable[[datetime], datetime | None]
) -> datetime | None:
    """The last but one due time of a piece; None: it has only one."""
    if piece.first == piece.last:
        return None
    return max(last_at_or_before(piece.last - _MICROSECOND) or piece.first, piece.first)
