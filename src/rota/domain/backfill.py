"""Backfill: due times of the past that are to run, at last or once more.

Final is final: what the ledger says of a due time stays, and the new run stands beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from rota.domain.errors import Invalid
from rota.domain.ids import BackfillId, JobId, RunId, instant
from rota.domain.schedule import Timetable
from rota.domain.states import RunState, is_final

MAX_DUE_TIMES = 10_000  # of one backfill
DEFAULT_MAX_PARALLEL = 1
MOST_PARALLEL = 1_000
_STEPS_BACK = 2  # of priority: what is due now goes first
_FAILED = frozenset({RunState.FAILED, RunState.TIMED_OUT})
_FIRST_INSTANT = instant(0)  # no schedule is due before
_MICROSECOND = timedelta(microseconds=1)


class Only(StrEnum):
    """Which due times of a range are wanted; without it, all of them."""

    MISSING = "missing"  # none of its runs completed, or it has none
    FAILED = "failed"  # none of its runs completed, and one failed or timed out


class SkipCause(StrEnum):
    """Cause for which a due time of the range is left out."""

    ACTIVE = "active"  # one of its runs is not over
    COMPLETED = "completed"  # one of its runs completed
    NOT_FAILED = "not_failed"  # none of its runs failed


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run of a due time: the one its schedule asked for, or one of a backfill."""

    id: RunId
    due_at: datetime
    state: RunState


@dataclass(frozen=True, slots=True)
class Repeat:
    """A due time that is to run."""

    due_at: datetime
    retry_of: RunId | None = None  # its newest run that failed; None: none did, or one completed


@dataclass(frozen=True, slots=True)
class Skipped:
    """Due times of the range that are left out for the same cause."""

    cause: SkipCause
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """Decision about each due time of a backfill's range."""

    repeats: tuple[Repeat, ...]  # by due time
    skipped: tuple[Skipped, ...] = ()

    @property
    def first(self) -> datetime | None:
        return self.repeats[0].due_at if self.repeats else None

    @property
    def last(self) -> datetime | None:
        return self.repeats[-1].due_at if self.repeats else None


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill as it was asked for; its runs tell how it goes."""

    id: BackfillId
    job_id: JobId
    max_parallel: int  # of its runs, how many may be in flight at once
    created_by: str
    runs: int
    first: datetime | None  # due times of its runs; None: it has none
    last: datetime | None
    skipped: tuple[Skipped, ...] = ()


def backfill_priority(priority: int) -> int:
    """Lower the priority of a job for the runs of its backfills: live work has the head start."""
    return max(0, priority - _STEPS_BACK)


def answered_end(until: datetime, next_at: datetime | None, now: datetime) -> datetime:
    """Return how far a backfill may reach: coming due times belong to the schedule."""
    end = min(until, now)
    return end if next_at is None else min(end, next_at - _MICROSECOND)


def due_times(table: Timetable, since: datetime, until: datetime) -> tuple[datetime, ...]:
    """List the due times of since ≤ due ≤ until. `Invalid` if they are too many."""
    before = max(since, _FIRST_INSTANT) - _MICROSECOND
    found = table.between(before, until, MAX_DUE_TIMES + 1)
    if len(found) > MAX_DUE_TIMES:
        raise Invalid(
            f"more than {MAX_DUE_TIMES:,} due times lie in that range",
            code="backfill_too_large",
            hint=f"the first {MAX_DUE_TIMES:,} end with {found[-2].isoformat()}: "
            "backfill up to there, then go on",
        )
    return found


def plan_backfill(
    due: Sequence[datetime], runs: Iterable[DueRun], only: Only | None
) -> BackfillPlan:
    """Choose among due times by the runs they have. `runs` are by age, the oldest first."""
    known: dict[datetime, list[DueRun]] = defaultdict(list)
    for run in runs:
        known[run.due_at].append(run)
    repeats: list[Repeat] = []
    skipped: dict[SkipCause, list[datetime]] = defaultdict(list)
    for at in due:
        cause = _skip_cause([run.state for run in known[at]], only)
        if cause is None:
            repeats.append(Repeat(at, _newest_failed(known[at])))
        else:
            skipped[cause].append(at)
    return BackfillPlan(
        tuple(repeats),
        tuple(Skipped(cause, len(at), at[0], at[-1]) for cause, at in sorted(skipped.items())),
    )


def _skip_cause(states: Sequence[RunState], only: Only | None) -> SkipCause | None:
    if not all(is_final(state) for state in states):
        return SkipCause.ACTIVE
    if only is None:
        return None
    if RunState.COMPLETED in states:
        return SkipCause.COMPLETED
    if only is Only.FAILED and _FAILED.isdisjoint(states):
        return SkipCause.NOT_FAILED
    return None


def _newest_failed(runs: Sequence[DueRun]) -> RunId | None:
    if any(run.state is RunState.COMPLETED for run in runs):
        return None
    return next((run.id for run in reversed(runs) if run.state in _FAILED), None)
