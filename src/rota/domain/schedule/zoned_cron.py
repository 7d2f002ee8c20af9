"""Due times of a cron expression on the clocks of a zone, through every change of those clocks.

Two steps. `LocalTimes` are the times that an expression names on a clock that never changes,
counted in seconds since 1970-01-01 00:00 on that clock. `ZonedCron` places them in UTC, one period
of constant offset after another, and applies the rules for times that a change leaves out (gap) or
shows twice (fold). Each period is plain arithmetic, so that counting years of due times is fast.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date
from functools import lru_cache

from rota.domain.schedule.cron import Cron
from rota.domain.schedule.days import Dates, dates_of
from rota.domain.schedule.sources import SECOND_MICROS, Kind
from rota.domain.schedule.zones import LAST_SECOND, Period, Zone
from rota.domain.spec import Dst, Fold, Gap

DAY_SECONDS = 86_400
EPOCH_DAY = date(1970, 1, 1).toordinal()
# Wider than a clock is ever from UTC, and than two offsets of a zone are ever apart.
CLOCK_MARGIN = 2 * DAY_SECONDS


class LocalTimes:
    """Local times an expression names, in order."""

    __slots__ = ("_dates", "_hours", "_in_hour")

    def __init__(self, cron: Cron) -> None:
        self._dates: Dates = dates_of(cron.days)
        self._hours = cron.hours
        self._in_hour = _seconds_in_hour(cron.minutes, cron.seconds)

    def at_or_after(self, local: int) -> int | None:
        day, second = divmod(local, DAY_SECONDS)
        found = self._dates.at_or_after(day + EPOCH_DAY)
        if found == day + EPOCH_DAY:
            time = self._time_at_or_after(second)
            if time is not None:
                return day * DAY_SECONDS + time
            found = self._dates.at_or_after(day + EPOCH_DAY + 1)
        if found is None:
            return None
        return (found - EPOCH_DAY) * DAY_SECONDS + self._hours[0] * 3600 + self._in_hour[0]

    def at_or_before(self, local: int) -> int | None:
        day, second = divmod(local, DAY_SECONDS)
        found = self._dates.at_or_before(day + EPOCH_DAY)
        if found == day + EPOCH_DAY:
            time = self._time_at_or_before(second)
            if time is not None:
                return day * DAY_SECONDS + time
            found = self._dates.at_or_before(day + EPOCH_DAY - 1)
        if found is None:
            return None
        return (found - EPOCH_DAY) * DAY_SECONDS + self._hours[-1] * 3600 + self._in_hour[-1]

    def any_in(self, first: int, end: int) -> bool:
        """Return whether a time lies in first ≤ time < end."""
        found = self.at_or_after(first)
        return found is not None and found < end

    def all_in(self, first: int, end: int) -> list[int]:
        """Return the times of first ≤ time < end, many at once."""
        found: list[int] = []
        day = self._dates.at_or_after(first // DAY_SECONDS + EPOCH_DAY)
        while day is not None and (midnight := (day - EPOCH_DAY) * DAY_SECONDS) < end:
            for hour in self._hours:
                begin = midnight + hour * 3600
                if first <= begin and begin + 3600 <= end:
                    found += [begin + second for second in self._in_hour]
                elif begin + 3600 > first and begin < end:
                    found += [t for second in self._in_hour if first <= (t := begin + second) < end]
            day = self._dates.at_or_after(day + 1)
        return found

    def count(self, first: int, end: int) -> int:
        """Count the times of first ≤ time < end; by arithmetic, not by walking."""
        first_day, first_second = divmod(first, DAY_SECONDS)
        end_day, end_second = divmod(end, DAY_SECONDS)
        days = self._dates.count(first_day + EPOCH_DAY, end_day + EPOCH_DAY)
        return (
            days * len(self._hours) * len(self._in_hour)
            - self._earlier_on(first_day, first_second)
            + self._earlier_on(end_day, end_second)
        )

    def _earlier_on(self, day: int, second: int) -> int:
        """Count the times of this day that come before the second."""
        if self._dates.at_or_after(day + EPOCH_DAY) != day + EPOCH_DAY:
            return 0
        hour, rest = divmod(second, 3600)
        index = bisect_left(self._hours, hour)
        earlier = index * len(self._in_hour)
        if index < len(self._hours) and self._hours[index] == hour:
            earlier += bisect_left(self._in_hour, rest)
        return earlier

    def _time_at_or_after(self, second: int) -> int | None:
        hour, rest = divmod(second, 3600)
        index = bisect_left(self._hours, hour)
        if index < len(self._hours) and self._hours[index] == hour:
            inner = bisect_left(self._in_hour, rest)
            if inner < len(self._in_hour):
                return hour * 3600 + self._in_hour[inner]
            index += 1
        return self._hours[index] * 3600 + self._in_hour[0] if index < len(self._hours) else None

    def _time_at_or_before(self, second: int) -> int | None:
        hour, rest = divmod(second, 3600)
        index = bisect_right(self._hours, hour) - 1
        if index >= 0 and self._hours[index] == hour:
            inner = bisect_right(self._in_hour, rest)
            if inner:
                return hour * 3600 + self._in_hour[inner - 1]
            index -= 1
        return self._hours[index] * 3600 + self._in_hour[-1] if index >= 0 else None


@lru_cache(maxsize=1024)
def _seconds_in_hour(minutes: tuple[int, ...], seconds: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(minute * 60 + second for minute in minutes for second in seconds)


# A larger jump is not a gap but another calendar: times inside it are simply absent.
LONGEST_GAP = 3 * 3600


class ZonedCron:
    """Due times of a cron expression in a zone."""

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
        """Return the due times of after < due ≤ through."""
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
        """Return whether the first instant of the period is due on behalf of times in the gap."""
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
        """Return where the period stops repeating local times that have already run."""
        return period.start - (period.shift if self._skips_repeats and period.shift < 0 else 0)

    def _skip_forward(self, period: Period, second: int) -> int:
        """Return where to go on after a period without due times; rare ones leap over years."""
        local = self.times.at_or_after(second + period.offset - CLOCK_MARGIN)
        if local is None:
            return LAST_SECOND + 1
        return max(period.end, local - period.offset - CLOCK_MARGIN)

    def _skip_back(self, period: Period) -> int:
        local = self.times.at_or_before(period.start + period.offset + CLOCK_MARGIN)
        if local is None:
            return -1
        return min(period.start - 1, local - period.offset + CLOCK_MARGIN)
