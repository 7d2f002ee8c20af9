"""Answers to the due times of a job: run, missed, or ruled out by its calendars.

Pure: it is given the time, never asks for it. It knows nothing of stores, runs, or who fires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rota.domain.calendars.blackout import (
    Allowed,
    Blackout,
    BlackoutAnswer,
    ReleasedAt,
    SkippedBy,
    blackout_answer,
    end_of_blackout,
)
from rota.domain.calendars.windows import LONGEST
from rota.domain.ids import instant, micros
from rota.domain.schedule import following
from rota.domain.schedule.misfire import CatchUp, DueRange, catch_up, catch_up_known
from rota.domain.schedule.sources import SECOND_MICROS, Interval
from rota.domain.schedule.timetable import Timetable
from rota.domain.schedule.zones import LAST_SECOND
from rota.domain.spec import Misfire

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
    """Yield all due times of cursor ≤ due ≤ until, in order; the cursor is due in any case.

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
    """Yield the pieces from the last to the first; of those that wait for one end, only the last
    due time still does. `following` is the answer to the job's next due time after them.
    """
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
    """Answer due times of one job, in order: of those that wait for one end, the last runs.

    `following` is the job's next due time after these, None if there is none. Where it waits for
    that end too, it runs in their stead.
    """
    pieces = [Piece(due, due, blackout_answer(blackouts, due)) for due in due_times]
    later = blackout_answer(blackouts, following) if following else Allowed()
    return tuple(piece.answer for piece in fold(pieces, later, lambda _: None))[::-1]


@dataclass(frozen=True, slots=True)
class OpenTimes:
    """Due times of a timetable that no calendar rules out, as far as there are pieces."""

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
        """Yield a stretch of these due times without those in between that are ruled out."""
        for piece in self.pieces:
            first, last = max(piece.first, stretch.first), min(piece.last, stretch.last)
            if first <= last:
                yield DueRange(first, last, 1 + self.timetable.count(first, last))

    def piece_at(self, due: datetime) -> Piece:
        return next(piece for piece in self.pieces if due <= piece.last)

    def _last(self, time: datetime, piece: Piece) -> datetime:
        return max(self.timetable.last_at_or_before(time) or piece.first, piece.first)


def next_edge(blackouts: Sequence[Blackout], second: int, limit: int) -> int:
    """Return the first second after this one at which an answer may change, at most the limit."""
    return min((_edge(blackout, second, limit) for blackout in blackouts), default=limit)


def _edge(blackout: Blackout, second: int, limit: int) -> int:
    begin = blackout.begin_from(second, limit)
    edge = blackout.end_from(second, limit) if begin == second else begin
    return limit if edge is None else min(edge, limit)


def _before_last(
    piece: Piece, last_at_or_before: Callable[[datetime], datetime | None]
) -> datetime | None:
    """Return the last but one due time of a piece; None: it has only one."""
    if piece.first == piece.last:
        return None
    return max(last_at_or_before(piece.last - _MICROSECOND) or piece.first, piece.first)


@dataclass(frozen=True, slots=True)
class FiringRules:
    """Rules that decide about the due times of a job."""

    timetable: Timetable
    misfire: Misfire
    grace: timedelta  # what is less late than this was not missed, only late
    blackouts: tuple[Blackout, ...] = ()  # of the calendars that it uses

    @property
    def is_simple(self) -> bool:
        """Return whether a due time that is alone and punctual just runs."""
        table = self.timetable
        return not (table.run_once or table.after_previous or self.blackouts)


@dataclass(frozen=True, slots=True)
class DueStart:
    """Due time that runs."""

    due: datetime
    not_before: datetime  # the due time itself, or the end of the blackout that it waits for
    calendar: str = ""  # the name of the calendar that makes it wait; "" if none does
    is_caught_up: bool = False  # late, and the misfire policy promises that it really runs


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Neighbouring due times that a calendar rules out: one entry of the ledger."""

    first: datetime
    last: datetime
    count: int
    cause: str
    previous: datetime | None  # the due time before the first; None: there is none


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to every due time from the cursor until now."""

    runs: tuple[DueStart, ...]  # in order
    missed: tuple[DueRange, ...]  # in order
    skipped: tuple[SkippedRange, ...]  # in order
    next_at: datetime | None  # after now; None: finished, or waiting for a run to end


def answer_due_times(
    rules: FiringRules, cursor: datetime, now: datetime, *, after: datetime | None
) -> Answers:
    """Apply `catch_up` to a job that may use calendars. `after` is the due time after the cursor.

    Due times that a calendar rules out were never missed, so the misfire policy chooses among the
    rest. Of those that wait for one end the last counts; with `run_once` the first. A run that is
    caught up inside a blackout waits for its end, whatever the calendar says of due times there.
    """
    if rules.is_simple and _is_only(cursor, after, now) and now - cursor <= rules.grace:
        return Answers((DueStart(cursor, cursor),), (), (), after)
    if not rules.blackouts or cursor > now:
        caught = catch_up(rules.timetable, cursor, now, rules.misfire, grace=rules.grace)
        runs = tuple(_promised(DueStart(due, due), caught) for due in caught.fire)
        return Answers(runs, caught.missed, (), caught.next_at)
    if rules.timetable.after_previous:
        return _answer_one(rules, cursor, now)
    return _answer_all(rules, cursor, now)


def _is_only(cursor: datetime, after: datetime | None, now: datetime) -> bool:
    return cursor <= now and (after is None or after > now)


def _answer_one(rules: FiringRules, cursor: datetime, now: datetime) -> Answers:
    """Answer only the cursor: the next due time depends on the end of its run.

    If it is skipped, the next due time follows it as if it had run, and had taken no time.
    """
    table = rules.timetable
    piece = Piece(cursor, cursor, blackout_answer(rules.blackouts, cursor))
    if piece.is_open:
        caught = catch_up(table, cursor, now, rules.misfire, grace=rules.grace)
        runs = _runs(rules, OpenTimes(table, (piece,)), caught, now)
        return Answers(runs, caught.missed, (), caught.next_at)
    next_at = table.after_completion(cursor)
    if next_at is not None and next_at <= now:
        next_at = table.after_completion(now)
    return Answers((), (), _skipped(rules, [piece]), next_at)


def _answer_all(rules: FiringRules, cursor: datetime, now: datetime) -> Answers:
    table = rules.timetable
    pieces = list(pieces_of(table, rules.blackouts, cursor, now))
    next_at = table.next_after(now)
    if not table.run_once:
        following = blackout_answer(rules.blackouts, next_at) if next_at else Allowed()
        pieces = list(fold(pieces, following, table.last_at_or_before))[::-1]
    open_times = OpenTimes(table, tuple(piece for piece in pieces if piece.is_open))
    caught = _caught_up(rules, open_times, now)
    runs = _runs(rules, open_times, caught, now)
    if table.run_once and runs:
        pieces = [piece for piece in pieces if piece.last < runs[0].due]
        next_at = None
    missed = tuple(part for stretch in caught.missed for part in open_times.parts(stretch))
    return Answers(runs, missed, _skipped(rules, pieces), next_at)


def _caught_up(rules: FiringRules, open_times: OpenTimes, now: datetime) -> CatchUp:
    if not open_times.pieces:
        return CatchUp((), (), None)
    first = open_times.pieces[0].first
    return catch_up_known(open_times, first, now, rules.misfire, grace=rules.grace)


def _runs(
    rules: FiringRules, open_times: OpenTimes, caught: CatchUp, now: datetime
) -> tuple[DueStart, ...]:
    starts = (
        _late_start(rules, due, now)
        if due < now - rules.grace and any(it.is_inside(now) for it in rules.blackouts)
        else _start(due, open_times.piece_at(due).answer)
        for due in caught.fire
    )
    return tuple(_promised(start, caught) for start in starts)


def _promised(start: DueStart, caught: CatchUp) -> DueStart:
    return replace(start, is_caught_up=True) if start.due in caught.promised else start


def _start(due: datetime, answer: BlackoutAnswer) -> DueStart:
    if isinstance(answer, ReleasedAt):
        return DueStart(due, answer.at, answer.name)
    return DueStart(due, due)


def _late_start(rules: FiringRules, due: datetime, now: datetime) -> DueStart:
    """Start a run that is caught up inside a blackout at the end of that, the latest it waits for.

    Where calendars together leave no free instant for years, it does not wait in vain.
    """
    end = end_of_blackout(rules.blackouts, now)
    if end is None:
        return DueStart(due, due)
    return DueStart(due, end, next(it.name for it in rules.blackouts if it.is_inside(now)))


def _skipped(rules: FiringRules, pieces: Sequence[Piece]) -> tuple[SkippedRange, ...]:
    table = rules.timetable
    return tuple(
        SkippedRange(
            piece.first,
            piece.last,
            1 + table.count(piece.first, piece.last),
            piece.answer.cause,
            _previous(table, piece.first),
        )
        for piece in pieces
        if isinstance(piece.answer, SkippedBy)
    )


def _previous(table: Timetable, due: datetime) -> datetime | None:
    if table.after_previous:
        return table.before_completion(due)
    return table.last_at_or_before(due - _MICROSECOND)


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Neighbouring due times that a calendar skips: one entry of the ledger."""

    stretch: DueRange
    cause: str


@dataclass(frozen=True, slots=True)
class SkippedNext:
    """Skip of the next due time that would run, with what comes before and after it."""

    ruled_out: tuple[RuledOut, ...]  # in order
    due: datetime
    next_at: datetime | None


def next_start(
    table: Timetable, blackouts: Sequence[Blackout], cursor: datetime
) -> DueStart | None:
    """Return the first due time from the cursor on that calendars let run; None: not in 5 years.

    The effort grows with the number of windows, not with that of the due times.
    """
    table = _independent(table, cursor)
    limit = min(micros(cursor) // SECOND_MICROS + LONGEST, LAST_SECOND)
    waiting: DueStart | None = None
    due: datetime | None = cursor
    while due is not None and (second := micros(due) // SECOND_MICROS) < limit:
        answer = blackout_answer(blackouts, due)
        if waiting is not None and not _lets_wait(waiting, due, answer):
            return waiting
        end = instant(next_edge(blackouts, second, limit) * SECOND_MICROS) - _MICROSECOND
        if isinstance(answer, Allowed):
            return DueStart(due, due)
        if isinstance(answer, ReleasedAt):
            last = due if table.run_once else table.last_at_or_before(end)
            waiting = DueStart(max(last or due, due), answer.at, answer.name)
        due = None if table.run_once and waiting else table.next_after(end)
    return waiting


def skip_next_start(
    table: Timetable, blackouts: Sequence[Blackout], cursor: datetime
) -> SkippedNext | None:
    """Skip the next due time that runs; None: there is none to skip."""
    start = next_start(table, blackouts, cursor)
    if start is None:
        return None
    known = _independent(table, cursor)
    before: list[Piece] = []
    if start.due > cursor:
        pieces = list(pieces_of(known, blackouts, cursor, start.due - _MICROSECOND))
        answer = blackout_answer(blackouts, start.due)
        before = list(fold(pieces, answer, known.last_at_or_before))[::-1]
    ruled_out = tuple(
        RuledOut(
            DueRange(piece.first, piece.last, 1 + known.count(piece.first, piece.last)),
            piece.answer.cause,
        )
        for piece in before
        if isinstance(piece.answer, SkippedBy)
    )
    return SkippedNext(ruled_out, start.due, following(table, start.due))


def _independent(table: Timetable, cursor: datetime) -> Timetable:
    """Return a timetable where a skipped due time counts as a run that took no time.

    The first one that waits is then the last: the next follows from its end.
    """
    if not table.after_previous:
        return table
    length = next(source.length for source in table.sources if isinstance(source, Interval))
    steps = (Interval(length, micros(cursor)),)
    return replace(table, sources=steps, after_previous=False, run_once=True)


def _lets_wait(waiting: DueStart, due: datetime, answer: Allowed | SkippedBy | ReleasedAt) -> bool:
    """Return whether a later due time may still take the place of the one that waits."""
    if isinstance(answer, SkippedBy):
        return due < waiting.not_before
    return isinstance(answer, ReleasedAt) and answer.at == waiting.not_before
