"""The times a cron expression names on a local clock, whatever the zone.

Local time is counted in seconds since 1970-01-01 00:00 on that clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date
from functools import lru_cache

from rota.domain.schedule.cron import Cron
from rota.domain.schedule.days import Dates, dates_of

DAY_SECONDS = 86_400
EPOCH_DAY = date(1970, 1, 1).toordinal()
# Wider than a clock is ever from UTC, and than two offsets of a zone are ever apart.
CLOCK_MARGIN = 2 * DAY_SECONDS


class LocalTimes:
    """All local times an expression names, in order."""

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
        """Whether a time lies in first ≤ time < end."""
        found = self.at_or_after(first)
        return found is not None and found < end

    def all_in(self, first: int, end: int) -> list[int]:
        """The times of first ≤ time < end, many at once."""
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
        """How many times lie in first ≤ time < end; by arithmetic, not by walking."""
        first_day, first_second = divmod(first, DAY_SECONDS)
        end_day, end_second = divmod(end, DAY_SECONDS)
        days = self._dates.count(first_day + EPOCH_DAY, end_day + EPOCH_DAY)
        return (
            days * len(self._hours) * len(self._in_hour)
            - self._earlier_on(first_day, first_second)
            + self._earlier_on(end_day, end_second)
        )

    def _earlier_on(self, day: int, second: int) -> int:
        """How many times of this day come before the second."""
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
