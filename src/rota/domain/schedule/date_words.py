"""The dates of a cron expression in words: `on Monday to Friday`, `on the last day of March`."""

from __future__ import annotations

from typing import assert_never

from rota.domain.schedule.days import (
    DayRule,
    Days,
    DayTerm,
    FromEnd,
    NearestWorkday,
    NthWeekday,
    Weekdays,
)
from rota.domain.schedule.phrases import listed, ranges

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", None: "last"}
_SUNDAY_LAST = 7


def date_words(rule: DayRule) -> str:
    """The dates, or "" for every day."""
    month = "" if len(rule.months) == len(_MONTHS) else _month_names(rule)
    by_day = "" if _is_every_day(rule) else _day_words(rule, month)
    by_weekday = "" if _is_every_weekday(rule) else _weekday_words(rule, month)
    if rule.either and not (by_day and by_weekday):
        by_day = by_weekday = ""
    if not (by_day or by_weekday):
        return f"in {month}" if month else ""
    joint = " or " if rule.either else " if also "
    return joint.join(words for words in (by_day, by_weekday) if words)


def _month_names(rule: DayRule) -> str:
    return ranges(rule.months, lambda number: _MONTHS[number - 1])


def _is_every_day(rule: DayRule) -> bool:
    return {d for term in rule.day_terms if isinstance(term, Days) for d in term.days} >= set(
        range(1, 32)
    )


def _is_every_weekday(rule: DayRule) -> bool:
    return len(_plain_weekdays(rule)) == len(_WEEKDAYS)


def _plain_weekdays(rule: DayRule) -> list[int]:
    """Monday to Sunday as 1 to 7."""
    terms = (term for term in rule.weekday_terms if isinstance(term, Weekdays))
    return sorted({weekday or _SUNDAY_LAST for term in terms for weekday in term.weekdays})


def _day_words(rule: DayRule, month: str) -> str:
    days = sorted({d for term in rule.day_terms if isinstance(term, Days) for d in term.days})
    words = [f"day{'s' if len(days) > 1 else ''} {ranges(days)}"] if days else []
    words += [_term_words(term) for term in rule.day_terms if not isinstance(term, Days)]
    return f"on {listed(words)} of {month or 'the month'}"


def _weekday_words(rule: DayRule, month: str) -> str:
    plain = _plain_weekdays(rule)
    nth = [_term_words(term) for term in rule.weekday_terms if not isinstance(term, Weekdays)]
    words = []
    if plain:
        on = "on " + ranges(plain, lambda number: _WEEKDAYS[number % 7])
        words.append(on + (f" in {month}" if month else ""))
    if nth:
        words.append(f"on {listed(nth)} of {month or 'the month'}")
    return " and ".join(words)


def _term_words(term: DayTerm) -> str:
    match term:
        case FromEnd(0):
            return "the last day"
        case FromEnd(before):
            return f"the last day but {before}"
        case NearestWorkday(None):
            return "the last workday"
        case NearestWorkday(day):
            return f"the workday nearest day {day}"
        case NthWeekday(weekday, nth):
            return f"the {_NTH[nth]} {_WEEKDAYS[weekday]}"
        case Days(days):
            return ranges(days)
        case Weekdays(weekdays):
            return ranges(weekdays)
        case _:
            assert_never(term)
