"""The due times to come of a job that uses calendars: which one runs next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rota.domain.calendars.answers import Allowed, ReleasedAt, SkippedBy, blackout_answer
from rota.domain.calendars.blackout import Blackout
from rota.domain.calendars.stretches import LONGEST
from rota.domain.firing.backlog import DueStart
from rota.domain.firing.pieces import Piece, fold, next_edge, pieces_of
from rota.domain.ids import instant, micros
from rota.domain.schedule import DueRange, Timetable, following
from rota.domain.schedule.sources import SECOND_MICROS, Interval
from rota.domain.schedule.zones import LAST_SECOND

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Neighbouring due times that a calendar skips: one entry of the ledger."""

    stretch: DueRange
    cause: str


@dataclass(frozen=True, slots=True)
class SkippedNext:
    """The next due time that would run, left out, and what comes before and after it."""

    ruled_out: tuple[RuledOut, ...]  # in order
    due: datetime
    next_at: datetime | None


def next_start(
    table: Timetable, blackouts: Sequence[Blackout], cursor: datetime
) -> DueStart | None:
    """The first due time from the cursor on that calendars let run; None: none in five years.

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
    """What leaving out the next due time that runs does; None: there is none to leave out."""
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
    """Where a due time follows from the end of a run, a skipped one is a run that took no time.

    The first one that waits is then the last: the next follows from its end.
    """
    if not table.after_previous:
        return table
    length = next(source.length for source in table.sources if isinstance(source, Interval))
    steps = (Interval(length, micros(cursor)),)
    return replace(table, sources=steps, after_previous=False, run_once=True)


def _lets_wait(waiting: DueStart, due: datetime, answer: Allowed | SkippedBy | ReleasedAt) -> bool:
    """Whether a later due time may still take the place of the one that waits."""
    if isinstance(answer, SkippedBy):
        return due < waiting.not_before
    return isinstance(answer, ReleasedAt) and answer.at == waiting.not_before
