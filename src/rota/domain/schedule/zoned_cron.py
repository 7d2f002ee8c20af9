"""A cron expression on the clocks of a zone, through every change of those clocks."""

from __future__ import annotations

from rota.domain.schedule.cron import Cron
from rota.domain.schedule.local_times import CLOCK_MARGIN, LocalTimes
from rota.domain.schedule.sources import SECOND_MICROS, Kind
from rota.domain.schedule.zones import LAST_SECOND, Period, Zone
from rota.domain.spec import Dst, Fold, Gap

# A larger jump is not a gap but another calendar: times inside it are simply absent.
LONGEST_GAP = 3 * 3600


class ZonedCron:
    """The due times of a cron expression in a zone."""

    __slots__ = ("_runs_after_gap", "_skips_repeats", "cron", "dst", "kind", "times", "zone")

    def __init__(self, cron: Cron, zone: Zone, dst: Dst) -> None:
        self.cron = cron
        self.zone = zone
        self.dst = dst
        self.times = LocalTimes(cron)
        self.kind = Kind.ELAPSED if cron.is_elapsed else Kind.FIXED
        self._runs_after_gap = self.kind is Kind.FIXED and dst.gap is Gap.RUN_AFTER
        self._skips_repeats = self.kind is Kind.FIXED and dst.fold is Fold.FIRST

    def next_after(self, micros: int) -> int | None:
        second = max(micros // SECOND_MICROS + 1, 0)
        while second <= LAST_SECOND:
            period = self.zone.period_at(second)
            due = self._first_in(period, second)
            if due is not None:
                return due * SECOND_MICROS
            second = self._skip_forward(period, second)
        return None

    def last_at_or_before(self, micros: int) -> int | None:
        second = min(micros // SECOND_MICROS, LAST_SECOND)
        while second >= 0:
            period = self.zone.period_at(second)
            due = self._last_in(period, second)
            if due is not None:
                return due * SECOND_MICROS if due >= 0 else None
            second = self._skip_back(period)
        return None

    def count(self, after: int, through: int) -> int:
        second = max(after // SECOND_MICROS + 1, 0)
        end = min(through // SECOND_MICROS, LAST_SECOND) + 1
        total = 0
        while second < end:
            period = self.zone.period_at(second)
            stop = min(period.end, end)
            total += self._count_in(period, second, stop)
            second = stop
        return total

    def all_in(self, after: int, through: int) -> list[int]:
        """The due times of after < due ≤ through."""
        second = max(after // SECOND_MICROS + 1, 0)
        end = min(through // SECOND_MICROS, LAST_SECOND) + 1
        found: list[int] = []
        while second < end:
            period = self.zone.period_at(second)
            stop = min(period.end, end)
            found += self._all_in(period, second, stop)
            second = stop
        return found

    def stands_in_for_gap(self, period: Period) -> bool:
        """Whether the first instant of the period is due on behalf of times in the gap."""
        if not (self._runs_after_gap and 0 < period.shift <= LONGEST_GAP):
            return False
        after_gap = period.start + period.offset
        return self.times.any_in(after_gap - period.shift, after_gap)

    def _first_in(self, period: Period, second: int) -> int | None:
        if period.shift:
            if second == period.start and self.stands_in_for_gap(period):
                return second
            second = max(second, self._fresh_from(period))
        local = self.times.at_or_after(second + period.offset)
        if local is None or local - period.offset >= period.end:
            return None
        due = local - period.offset
        return due if due <= LAST_SECOND else None

    def _last_in(self, period: Period, second: int) -> int | None:
        local = self.times.at_or_before(second + period.offset)
        if local is not None and local - period.offset >= self._fresh_from(period):
            return local - period.offset
        return period.start if self.stands_in_for_gap(period) else None

    def _count_in(self, period: Period, second: int, end: int) -> int:
        first = max(second, self._fresh_from(period))
        total = 0
        if first < end:
            total = self.times.count(first + period.offset, end + period.offset)
        if second == period.start and self.stands_in_for_gap(period):
            local = second + period.offset
            total += not self.times.any_in(local, local + 1)
        return total

    def _all_in(self, period: Period, second: int, end: int) -> list[int]:
        first, offset = max(second, self._fresh_from(period)), period.offset
        local = self.times.all_in(first + offset, end + offset)
        found = [(time - offset) * SECOND_MICROS for time in local]
        if second == period.start and self.stands_in_for_gap(period):
            stand_in = second * SECOND_MICROS
            return found if found[:1] == [stand_in] else [stand_in, *found]
        return found

    def _fresh_from(self, period: Period) -> int:
        """Where the period stops repeating local times that have already run."""
        return period.start - (period.shift if self._skips_repeats and period.shift < 0 else 0)

    def _skip_forward(self, period: Period, second: int) -> int:
        """Where to go on after a period without a due time: rare expressions leap over years."""
        local = self.times.at_or_after(second + period.offset - CLOCK_MARGIN)
        if local is None:
            return LAST_SECOND + 1
        return max(period.end, local - period.offset - CLOCK_MARGIN)

    def _skip_back(self, period: Period) -> int:
        local = self.times.at_or_before(period.start + period.offset + CLOCK_MARGIN)
        if local is None:
            return -1
        return min(period.start - 1, local - period.offset + CLOCK_MARGIN)
