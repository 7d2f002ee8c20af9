"""Where a schedule goes on when due times pass without a run: after a hold, after an edit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.schedule.misfire import DueRange
from rota.domain.schedule.timetable import Timetable


@dataclass(frozen=True, slots=True)
class PassedOver:
    """The due times of a stretch that nothing ran for, and the one after it."""

    passed: DueRange | None  # None: no due time lies in the stretch
    next_at: datetime | None


def pass_over(table: Timetable, cursor: datetime, until: datetime) -> PassedOver:
    """Answer all due times of cursor ≤ due ≤ until at once, in one entry of the ledger."""
    if cursor > until:
        return PassedOver(None, cursor)
    if table.after_previous:
        return PassedOver(DueRange(cursor, cursor, 1), table.after_completion(until))
    last = max(table.last_at_or_before(until) or cursor, cursor)
    passed = DueRange(cursor, last, 1 + table.count(cursor, until))
    return PassedOver(passed, table.next_after(until))


def following(table: Timetable, due: datetime) -> datetime | None:
    """The due time after one that does not run."""
    return table.after_completion(due) if table.after_previous else table.next_after(due)
