"""Dates that a cron expression names, and a calendar to walk them fast."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

_MAX_ORDINAL = date.max.toordinal()
_SUNDAY, _SATURDAY = 0, 6
_MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Month:
    """The shape of a month: all that decides which of its days match."""

    length: int
    first_weekday: int  # 0 is Sunday

    def weekday(self, day: int) -> int:
        return (self.first_weekday + day - 1) % 7


@dataclass(frozen=True, slots=True)
class Days:
    """Days by number: `1,15` or `*` in the day field."""

    days: tuple[int, ...]

    def in_month(self, month: Month) -> set[int]:
        return {day for day in self.days if day <= month.length}


@dataclass(frozen=True, slots=True)
class FromEnd:
    """Days counted from the end: `L`, `L-3`: so many days before the last one."""

    days_before: int

    def in_month(self, month: Month) -> set[int]:
        day = month.length - self.days_before
        return {day} if day >= 1 else set()


@dataclass(frozen=True, slots=True)
class NearestWorkday:
    """`15W`: the Monday to Friday nearest to the day, in the same month; `LW`: to the last day."""

    day: int | None  # None: the last of the month
    days_before: int = 0  # `L-3W`: so many days before the last one; 0 with a day

    def in_month(self, month: Month) -> set[int]:
        day = month.length - self.days_before if self.day is None else self.day
        if not 1 <= day <= month.length:
            return set()
        if month.weekday(day) == _SATURDAY:
            return {day - 1 if day > 1 else day + 2}
        if month.weekday(day) == _SUNDAY:
            return {day + 1 if day < month.length else day - 2}
        return {day}


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Days by weekday: `MON-FRI` or `*` in the weekday field."""

    weekdays: tuple[int, ...]  # 0 is Sunday

    def in_month(self, month: Month) -> set[int]:
        return {d for d in range(1, month.length + 1) if month.weekday(d) in self.weekdays}


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """Numbered weekday: `5#2`: the second Friday; `5L`: the last one."""

    weekday: int  # 0 is Sunday
    nth: int | None  # 1–5; None: the last

    def in_month(self, month: Month) -> set[int]:
        first = 1 + (self.weekday - month.first_weekday) % 7
        nth = self.nth or 1 + (month.length - first) // 7
        day = first + 7 * (nth - 1)
        return {day} if day <= month.length else set()


DayTerm = Days | FromEnd | NearestWorkday | Weekdays | NthWeekday


@dataclass(frozen=True, slots=True)
class DayRule:
    """The day, month and weekday fields together."""

    months: tuple[int, ...]
    day_terms: tuple[DayTerm, ...]
    weekday_terms: tuple[DayTerm, ...]
    either: bool  # both fields are restricted: one match is enough, as in Vixie cron

    def in_month(self, month: Month) -> set[int]:
        days = {day for term in self.day_terms for day in term.in_month(month)}
        weekdays = {day for term in self.weekday_terms for day in term.in_month(month)}
        return days | weekdays if self.either else days & weekdays


class Dates:
    """The dates of a rule, as proleptic ordinals (`date.toordinal`).

    A year is one of fourteen kinds (leap or not, weekday of 1 January), so fourteen tables of
    matching days answer for all time.
    """

    __slots__ = ("_rule", "_tables")

    def __init__(self, rule: DayRule) -> None:
        self._rule = rule
        self._tables: list[tuple[int, ...] | None] = [None] * 14

    def is_empty(self) -> bool:
        """Return whether no date ever matches."""
        return not any(self._table(kind) for kind in range(14))

    def at_or_after(self, day: int) -> int | None:
        if day > _MAX_ORDINAL:
            return None
        for year in range(date.fromordinal(day).year, date.max.year + 1):
            start, table = self._year(year)
            index = bisect_left(table, day - start)
            if index < len(table):
                return start + table[index]
        return None

    def at_or_before(self, day: int) -> int | None:
        for year in range(date.fromordinal(min(day, _MAX_ORDINAL)).year, 0, -1):
            start, table = self._year(year)
            index = bisect_left(table, day - start + 1)
            if index:
                return start + table[index - 1]
        return None

    def count(self, first: int, end: int) -> int:
        """Return how many dates match in first ≤ date < end."""
        last_year = date.fromordinal(min(end, _MAX_ORDINAL)).year
        total = 0
        for year in range(date.fromordinal(first).year, last_year + 1):
            start, table = self._year(year)
            total += bisect_left(table, end - start) - bisect_left(table, first - start)
        return total

    def _year(self, year: int) -> tuple[int, tuple[int, ...]]:
        """Return the ordinal of 1 January, and the offsets from it of the days that match."""
        before = year - 1
        start = before * 365 + before // 4 - before // 100 + before // 400 + 1
        kind = start % 7 + 7 * _is_leap(year)
        table = self._tables[kind]
        return start, self._table(kind) if table is None else table

    def _table(self, kind: int) -> tuple[int, ...]:
        table = self._tables[kind]
        if table is None:
            table = self._tables[kind] = tuple(self._matches(*divmod(kind, 7)))
        return table

    def _matches(self, leap: int, first_weekday: int) -> list[int]:
        offsets: list[int] = []
        passed = 0
        for number, length in enumerate(_MONTH_LENGTHS, 1):
            month = Month(length + (leap if number == 2 else 0), (first_weekday + passed) % 7)
            if number in self._rule.months:
                offsets += (passed + day - 1 for day in sorted(self._rule.in_month(month)))
            passed += month.length
        return offsets


@lru_cache(maxsize=1024)
def dates_of(rule: DayRule) -> Dates:
    """Return the dates of a rule, shared by all expressions that name the same dates."""
    return Dates(rule)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
