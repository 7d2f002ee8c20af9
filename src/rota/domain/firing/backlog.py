"""The due times of a job up to now, answered with the calendars that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rota.domain.calendars.answers import (
    Allowed,
    BlackoutAnswer,
    ReleasedAt,
    SkippedBy,
    blackout_answer,
)
from rota.domain.calendars.blackout import Blackout, end_of_blackout
from rota.domain.firing.pieces import OpenTimes, Piece, fold, pieces_of
from rota.domain.schedule.misfire import CatchUp, DueRange, catch_up, catch_up_known
from rota.domain.schedule.timetable import Timetable
from rota.domain.spec import Misfire

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class FiringRules:
    """What decides about the due times of a job."""

    timetable: Timetable
    misfire: Misfire
    grace: timedelta  # what is less late than this was not missed, only late
    blackouts: tuple[Blackout, ...] = ()  # of the calendars that it uses

    @property
    def is_simple(self) -> bool:
        """Whether a due time that is alone and punctual just runs."""
        table = self.timetable
        return not (table.run_once or table.after_previous or self.blackouts)


@dataclass(frozen=True, slots=True)
class DueStart:
    """A due time that runs."""

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
    """What becomes of every due time from the cursor until now."""

    runs: tuple[DueStart, ...]  # in order
    missed: tuple[DueRange, ...]  # in order
    skipped: tuple[SkippedRange, ...]  # in order
    next_at: datetime | None  # after now; None: finished, or waiting for a run to end


def answer_due_times(
    rules: FiringRules, cursor: datetime, now: datetime, *, after: datetime | None
) -> Answers:
    """`catch_up` for a job that may use calendars. `after` is the due time after the cursor.

    What a calendar rules out was never missed, so the misfire policy chooses among the rest. Of
    the due times that wait for one end the last counts; with `run_once` the first. A run that is
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
    """Only the cursor is due: what follows depends on the end of its run.

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
    """Caught up inside a blackout. Whatever it waited for before ends no later than this one.

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
