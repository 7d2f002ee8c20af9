"""Misfires: decisions about due times that passed while nothing could fire."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from rota.domain.schedule.timetable import Timetable
from rota.domain.spec import Misfire, MisfirePolicy

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DueRange:
    """Neighbouring due times that do not run: one entry of the ledger."""

    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The answer to every due time from the cursor until now."""

    fire: tuple[datetime, ...]  # run now, in order
    missed: tuple[DueRange, ...]  # in order
    next_at: datetime | None  # after now; None: finished, or waiting for a run to end
    promised: frozenset[datetime] = frozenset()  # late ones of `fire` that must really run


class DueTimes(Protocol):
    """Due times that do not depend on what became of earlier ones."""

    @property
    def run_once(self) -> bool: ...

    def next_after(self, time: datetime) -> datetime | None: ...

    def last_at_or_before(self, time: datetime) -> datetime | None: ...

    def count(self, after: datetime, through: datetime) -> int: ...

    def one_offs(self, after: datetime, through: datetime) -> tuple[datetime, ...]: ...


def catch_up(
    timetable: Timetable, next_at: datetime, now: datetime, misfire: Misfire, *, grace: timedelta
) -> CatchUp:
    """Divide the due times of next_at ≤ due ≤ now into runs and misses, leaving none out.

    `next_at`, the cursor, is due whether or not the timetable names it. Due times at most
    `grace` late all fire. Of older ones those that the schedule names one by one fire, and the
    policy chooses among the rest. With `run_once` due times end with the first one that fires.
    For a single expression a long outage costs no more than a short one.
    """
    if timetable.after_previous and next_at <= now:
        backlog = _Backlog(timetable, next_at, now)
        return _catch_up_completion(timetable, backlog, _oldest_run(misfire, backlog, grace))
    return catch_up_known(timetable, next_at, now, misfire, grace=grace)


def catch_up_known(
    due_times: DueTimes, next_at: datetime, now: datetime, misfire: Misfire, *, grace: timedelta
) -> CatchUp:
    """Divide due times where none waits for a run to end."""
    if next_at > now:
        return CatchUp((), (), next_at)
    backlog = _Backlog(due_times, next_at, now)
    if due_times.run_once:
        return _catch_up_once(backlog, _oldest_run(misfire, backlog, grace))
    punctual_from = now - grace
    one_offs = _late_one_offs(backlog, punctual_from)
    named = _still_wanted(one_offs, misfire, now)
    chosen = _late_runs(replace(backlog, left_out=frozenset(one_offs)), misfire, punctual_from)
    late = tuple(sorted((*named, *chosen)))
    fire = late + backlog.all_since(punctual_from)
    promised = late if misfire.policy is MisfirePolicy.ALL else named
    return CatchUp(
        fire, backlog.missed_around(fire), due_times.next_after(now), frozenset(promised)
    )


@dataclass(frozen=True, slots=True)
class _Backlog:
    """The due times from the cursor until now."""

    due_times: DueTimes
    cursor: datetime
    now: datetime
    left_out: frozenset[datetime] = frozenset()  # not for the policy to choose

    def first_from(self, time: datetime) -> datetime | None:
        if time <= self.cursor:
            return self.cursor
        due = self.due_times.next_after(time - _MICROSECOND)
        return due if due is not None and due <= self.now else None

    def last_until(self, time: datetime) -> datetime | None:
        if time < self.cursor:
            return None
        return max(self.due_times.last_at_or_before(time) or self.cursor, self.cursor)

    def all_since(self, time: datetime) -> tuple[datetime, ...]:
        found = []
        due = self.first_from(time)
        while due is not None:
            found.append(due)
            due = self.first_from(due + _MICROSECOND)
        return tuple(found)

    def newest_before(self, end: datetime, since: datetime, limit: int) -> tuple[datetime, ...]:
        """Return the newest due times of since ≤ due < end, at most `limit`, in order."""
        found: list[datetime] = []
        due = self.last_until(end - _MICROSECOND)
        while due is not None and due >= since and len(found) < limit:
            if due not in self.left_out:
                found.append(due)
            due = self.last_until(due - _MICROSECOND)
        return tuple(reversed(found))

    def oldest_before(self, end: datetime, since: datetime) -> tuple[datetime, ...]:
        """Return the oldest due time of since ≤ due < end, if there is one."""
        due = self.first_from(since)
        while due in self.left_out:
            due = self.first_from(due + _MICROSECOND)
        return (due,) if due is not None and due < end else ()

    def missed_around(self, fire: tuple[datetime, ...]) -> tuple[DueRange, ...]:
        """Return all that do not fire, as ranges between those that do."""
        begins = (self.cursor, *(due + _MICROSECOND for due in fire))
        ends = (*(due - _MICROSECOND for due in fire), self.now)
        ranges = (self.missed(*bounds) for bounds in zip(begins, ends, strict=True))
        return tuple(missed for found in ranges for missed in found)

    def missed(self, begin: datetime, end: datetime) -> tuple[DueRange, ...]:
        first, last = self.first_from(begin), self.last_until(end)
        if first is None or last is None or first > last:
            return ()
        return (DueRange(first, last, 1 + self.due_times.count(first, last)),)


def _late_one_offs(backlog: _Backlog, end: datetime) -> tuple[datetime, ...]:
    """Return the times before `end` that the schedule names one by one."""
    return backlog.due_times.one_offs(backlog.cursor - _MICROSECOND, end - _MICROSECOND)


def _still_wanted(
    one_offs: tuple[datetime, ...], misfire: Misfire, now: datetime
) -> tuple[datetime, ...]:
    """Keep single times that run late: all, unless `within` or `none` says otherwise."""
    if misfire.policy is MisfirePolicy.NONE:
        return ()
    within = misfire.one_off_within
    return tuple(due for due in one_offs if within is None or due >= now - within)


def _late_runs(backlog: _Backlog, misfire: Misfire, end: datetime) -> tuple[datetime, ...]:
    """Return the due times before `end` that the policy still runs."""
    since = _window_start(misfire, backlog)
    match misfire.policy:
        case MisfirePolicy.NONE:
            return ()
        case MisfirePolicy.FIRST:
            return backlog.oldest_before(end, since)
        case MisfirePolicy.LAST:
            return backlog.newest_before(end, since, 1)
        case MisfirePolicy.ALL:
            return backlog.newest_before(end, since, misfire.max)


def _catch_up_once(backlog: _Backlog, oldest: datetime) -> CatchUp:
    first = backlog.first_from(oldest)
    if first is None:
        return CatchUp((), backlog.missed_around(()), backlog.due_times.next_after(backlog.now))
    return CatchUp((first,), backlog.missed(backlog.cursor, first - _MICROSECOND), None)


def _catch_up_completion(timetable: Timetable, backlog: _Backlog, oldest: datetime) -> CatchUp:
    """Answer only the cursor: the next due time depends on the end of its run."""
    cursor = backlog.cursor
    if cursor >= oldest:
        return CatchUp((cursor,), (), None)
    missed = (DueRange(cursor, cursor, 1),)
    return CatchUp((), missed, timetable.after_completion(backlog.now))


def _oldest_run(misfire: Misfire, backlog: _Backlog, grace: timedelta) -> datetime:
    """Return how old the only run may be."""
    punctual_from = backlog.now - grace
    if misfire.policy is MisfirePolicy.NONE:
        return punctual_from
    return min(_window_start(misfire, backlog), punctual_from)


def _window_start(misfire: Misfire, backlog: _Backlog) -> datetime:
    return backlog.cursor if misfire.within is None else backlog.now - misfire.within


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
    """Return the due time after one that does not run."""
    return table.after_completion(due) if table.after_previous else table.next_after(due)
