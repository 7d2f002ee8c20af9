"""The due times of a job up to now, answered with the calendars that it uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from rota.domain.ids import instant, micros
from rota.domain.schedule.misfire import CatchUp, MissedRange, catch_up, catch_up_known
from rota.domain.schedule.sources import SECOND_MICROS
from rota.domain.schedule.timetable import Timetable
from rota.domain.spec import Misfire

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DueRun:
    """A due time that runs."""

    due: datetime
    not_before: datetime  # the due time itself, or the end of the blackout that it waits for


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Neighbouring due times that a calendar rules out."""

    first: datetime
    last: datetime
    count: int
    cause: str
    previous: datetime | None  # the due time before the first; None: there is none


@dataclass(frozen=True, slots=True)
class Answers:
    """What becomes of every due time from the cursor until now."""

    runs: tuple[DueRun, ...]  # in order
    missed: tuple[MissedRange, ...]  # in order
    skipped: tuple[SkippedRange, ...]  # in order
    next_at: datetime | None  # after now; None: finished, or waiting for a run to end


def catch_up_around(
    timetable: Timetable,
    blackouts: Sequence[Blackout],
    cursor: datetime,
    now: datetime,
    misfire: Misfire,
    *,
    grace: timedelta,
) -> Answers:
    """`catch_up` for a job that uses calendars.

    What a calendar rules out was never missed, so the misfire policy chooses among the rest. Of
    the due times that wait for the same end the last one counts, but with `run_once` the first. A
    run that is caught up while a blackout is on waits for its end, whatever the calendar says of
    due times inside.
    """
    if cursor > now:
        return Answers((), (), (), cursor)
    if timetable.after_previous:
        return _after_previous(timetable, blackouts, cursor, now, misfire, grace=grace)
    pieces = _pieces(timetable, blackouts, cursor, now)
    if not timetable.run_once:
        pieces = _folded(timetable, pieces, blackout_answer_of_next(timetable, blackouts, now))
    open_times = _OpenTimes(timetable, tuple(piece for piece in pieces if piece.is_open))
    caught = open_times.catch_up(cursor, now, misfire, grace)
    runs = tuple(
        _late_run(open_times.run(due), blackouts, now, grace=grace) for due in caught.fire
    )
    is_over = timetable.run_once and bool(runs)
    limit = runs[0].due if is_over else now
    return Answers(
        runs,
        tuple(part for stretch in caught.missed for part in open_times.split(stretch)),
        tuple(_skipped(timetable, piece) for piece in pieces if not piece.is_open and piece.last <= limit),
        None if is_over else timetable.next_after(now),
    )
