"""Cron expressions: five fields, six with seconds first, the four of the short form, or `@daily`.

Names, ranges, lists, steps, `L`, `W`, `#` and `?` as in Vixie and Quartz; weekday 0 and 7 are
Sunday. Quartz's seventh field, the year, is read if it says nothing. `H` stands for a value that
is stable per job, as in Jenkins.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rota.domain.errors import quoted
from rota.domain.ids import stable_fraction
from rota.domain.schedule.days import (
    DayRule,
    Days,
    DayTerm,
    FromEnd,
    NearestWorkday,
    NthWeekday,
    Weekdays,
    dates_of,
)

Hash = Callable[[str], float]  # field name → a number in [0, 1) that never changes for a job

_QUOTED = re.compile('(?<=")([^"…]+)(?=…?")')
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_MONTHS = "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER"
_WEEKDAYS = "SUNDAY MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY"
_SHORT_NAME = 3  # letters


@dataclass(frozen=True, slots=True)
class Field:
    """Range and names of a field."""

    name: str
    low: int
    high: int
    highest_value: int  # where `*` and an open step end; below `high` if two numbers mean the same
    highest_hash: int  # `H` stays at or below it, so that it exists in every month
    names: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.highest_value - self.low + 1

    @property
    def range_text(self) -> str:
        names = [name for name in self.names if len(name) == _SHORT_NAME]
        return f"{self.low}–{self.high}" + (f" or {names[0]}–{names[-1]}" if names else "")


def upper(text: str) -> str:
    """Upper-case ASCII letters only: `str.upper` would turn `ſun` and `frı` into names."""
    return text.translate(_UPPER)


def _numbered(names: str, first: int) -> dict[str, int]:
    """Map names to numbers, in three letters and whole."""
    whole = {name: value for value, name in enumerate(names.split(), first)}
    return {name[:_SHORT_NAME]: value for name, value in whole.items()} | whole


SECOND = Field("second", 0, 59, 59, 59)
MINUTE = Field("minute", 0, 59, 59, 59)
HOUR = Field("hour", 0, 23, 23, 23)
DAY = Field("day", 1, 31, 31, 28)
MONTH = Field("month", 1, 12, 12, 12, _numbered(_MONTHS, 1))
WEEKDAY = Field("weekday", 0, 7, 6, 6, _numbered(_WEEKDAYS, 0))


def field_values(field: Field, text: str, stable_hash: Hash) -> tuple[int, ...]:
    """Return the values a whole field stands for, ascending, each once."""
    terms = split_terms(field, text)
    return tuple(sorted({v for term in terms for v in term_values(field, term, stable_hash)}))


def split_terms(field: Field, text: str) -> list[str]:
    terms = text.split(",")
    if "" in terms:
        raise ValueError(f"{field.name} {quoted(text)} has an empty term")
    return terms


def term_values(field: Field, term: str, stable_hash: Hash) -> tuple[int, ...]:
    """Return the values of one term: `*`, `5`, `1-5`, `*/10`, `22-2`, `H`, `H(0-29)/10`."""
    body, slash, step_text = term.partition("/")
    if slash and not body:
        raise ValueError(
            f"{field.name} {quoted(term)} has nothing before the slash: write {quoted('*' + term)}"
        )
    step = _step(field, step_text) if slash else None
    if body.startswith("H"):
        return _hashed_values(field, body, step, stable_hash)
    first, last = _bounds(field, body, is_open=step is not None)
    if last < first:  # past the end and on from the beginning: 22-2, FRI-MON, NOV-FEB
        last += field.size
    # Folding into the field also makes weekday 7 a Sunday.
    values = range(first, last + 1, step or 1)
    return tuple(field.low + (value - field.low) % field.size for value in values)


def number(field: Field, text: str) -> int:
    """Parse a number or name inside the field's range."""
    if text in field.names:
        return field.names[text]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{field.name} {quoted(text)} does not exist ({field.range_text})")
    if len(text) > 4 or not field.low <= int(text) <= field.high:
        shown = text if len(text) < 20 else quoted(text)
        raise ValueError(f"{field.name} {shown} does not exist ({field.range_text})")
    return int(text)


def _bounds(field: Field, body: str, *, is_open: bool) -> tuple[int, int]:
    if body == "*":
        return field.low, field.highest_value
    first_text, dash, last_text = body.partition("-")
    if dash and not (first_text and last_text):
        raise ValueError(
            f"{field.name} {quoted(body)} is half a range: write first-last ({field.range_text})"
        )
    first = number(field, first_text)
    if dash:
        return first, number(field, last_text)
    return first, field.highest_value if is_open else first


def _step(field: Field, text: str) -> int:
    """Parse a step: one past the end of the range leaves its first value, as in cron."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{field.name} step {quoted(text)} is not a number")
    step = int(text)
    if step == 0:
        raise ValueError(f"{field.name} step 0 never moves on: the smallest step is 1")
    return step


def _hashed_values(field: Field, body: str, step: int | None, stable_hash: Hash) -> tuple[int, ...]:
    low, high = _hash_bounds(field, body)
    last_start = high if step is None else min(high, low + step - 1)
    start = low + int(stable_hash(field.name) * (last_start - low + 1))
    return (start,) if step is None else tuple(range(start, high + 1, step))


def _hash_bounds(field: Field, body: str) -> tuple[int, int]:
    if body == "H":
        return field.low, field.highest_hash
    inner = body[2:-1]
    if body != f"H({inner})" or "-" not in inner:
        raise ValueError(f"{field.name} {quoted(body)}: write H or H(first-last)")
    first_text, _, last_text = inner.partition("-")
    low, high = number(field, first_text), number(field, last_text)
    if low > high or high > field.highest_value:
        raise ValueError(f"{field.name} {quoted(body)}: the range of H must ascend")
    return low, high


SHORTCUTS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
    "@MINUTELY": "* * * * *",
}
MAX_LENGTH = 1000
MAX_TERMS = 194  # one for every value of every field: more only repeat themselves

_HAS_HASH = re.compile(r"(?:^|[\s,])H")
_FROM_END = re.compile(r"L(?:-([0-9]+))?(W)?")
_WORKDAY = re.compile(r"([0-9]+)W")
_TO_LAST_DAY = re.compile(r"([0-9]+)-L")
_YEAR = re.compile(r"[0-9]{4}")


@dataclass(frozen=True, slots=True)
class Cron:
    """Parsed cron expression; every field ascending."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: DayRule
    has_seconds: bool  # a field for seconds was written
    is_elapsed: bool  # minute or hour starts with `*`: follows elapsed time through clock changes


@dataclass(frozen=True, slots=True)
class CronFields:
    """The fields of an expression as written, and how they go together."""

    second: str
    minute: str
    hour: str
    day: str
    month: str
    weekday: str
    either: bool  # a date matches by its day or its weekday: see `DayRule`
    has_seconds: bool
    is_elapsed: bool


def parse_cron(text: str, key: str) -> Cron:
    """Parse an expression; a ValueError says what is wrong.

    `key` is the job's identity, the seed of `H`.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text)} characters, at most {MAX_LENGTH} are read")
    normal = " ".join(upper(text).split())
    try:
        return _parse(normal, key if has_hash(normal) else "")
    except ValueError as error:
        raise ValueError(as_typed(str(error), text)) from None


def as_typed(message: str, text: str) -> str:
    """Return a message about a text with what it quotes of it in the case that was typed."""
    typed = " ".join(text.split())
    normal = upper(typed)  # as long as `typed`: a place in one is the same place in the other

    def restore(found: re.Match[str]) -> str:
        start = normal.find(upper(found[1]))
        return typed[start : start + len(found[1])] if start >= 0 else found[1]

    return _QUOTED.sub(restore, message)


def has_hash(text: str) -> bool:
    """Return whether the meaning depends on the job, by `H`."""
    return _HAS_HASH.search(upper(text)) is not None


@lru_cache(maxsize=4096)
def _parse(text: str, key: str) -> Cron:
    written = _expand_shortcut(text).split(" ")
    second, minute, hour, day, month, weekday = _six_fields(written)
    _check_terms(written)
    cron_fields = CronFields(
        *(second, minute, hour, day, month, weekday),
        either=not (_is_open(day) or _is_open(weekday)),
        has_seconds=len(written) != 5,
        is_elapsed=minute.startswith("*") or hour.startswith("*"),
    )
    return cron_of(text, cron_fields, key)


def cron_of(text: str, written: CronFields, key: str) -> Cron:
    """Understand the fields of an expression, each in upper case."""

    def stable_hash(field: str) -> float:
        return stable_fraction(key, "H", field)

    cron = Cron(
        text=text,
        seconds=field_values(SECOND, written.second, stable_hash),
        minutes=field_values(MINUTE, written.minute, stable_hash),
        hours=field_values(HOUR, written.hour, stable_hash),
        days=DayRule(
            months=field_values(MONTH, written.month, stable_hash),
            day_terms=_day_terms(written.day, stable_hash),
            weekday_terms=_weekday_terms(written.weekday, stable_hash),
            either=written.either,
        ),
        has_seconds=written.has_seconds,
        is_elapsed=written.is_elapsed,
    )
    if dates_of(cron.days).is_empty():
        raise ValueError(_never(written.day, written.month, written.weekday))
    return cron


def _expand_shortcut(text: str) -> str:
    if not text.startswith("@"):
        return text
    if text in SHORTCUTS:
        return SHORTCUTS[text]
    if text == "@REBOOT":
        raise ValueError("a start of the machine is not a time: trigger the job instead")
    raise ValueError(f"not one of {' '.join(SHORTCUTS).lower()} or @every 5m")


def _six_fields(written: list[str]) -> list[str]:
    match len(written):
        case 4:
            return [*written, "*", "*"]
        case 5:
            return ["0", *written]
        case 6 if not _YEAR.fullmatch(written[-1]):
            return written
        case 7 if written[-1] in ("*", "?"):
            return written[:-1]
        case 6 | 7:
            raise ValueError(
                f"year {quoted(written[-1])}: no field stands for the year;"
                " leave it out and bound the schedule by starts and ends"
            )
        case count:
            raise ValueError(
                f"{count} fields: cron has 5 (minute hour day month weekday),"
                " 6 (second first) or 4 (second minute hour day)"
            )


def _check_terms(written: list[str]) -> None:
    terms = sum(field.count(",") + 1 for field in written)
    if terms > MAX_TERMS:
        raise ValueError(f"{terms} terms, at most {MAX_TERMS} can differ")


def _is_open(text: str) -> bool:
    """Return whether Vixie cron calls the field unrestricted: `*`, and also `*/2`."""
    return text.startswith(("*", "?"))


def _day_terms(text: str, stable_hash: Hash) -> tuple[DayTerm, ...]:
    if text == "?":
        text = "*"
    return tuple(_day_term(term, stable_hash) for term in split_terms(DAY, text))


def _day_term(term: str, stable_hash: Hash) -> DayTerm:
    if match := _FROM_END.fullmatch(term):
        return _from_end(term, match[1], is_workday=match[2] is not None)
    if match := _TO_LAST_DAY.fullmatch(term):
        raise ValueError(
            f"day {quoted(term)}: write {match[1]}-31, days that a month does not have are left out"
        )
    if match := _WORKDAY.fullmatch(term):
        return NearestWorkday(number(DAY, match[1]))
    return Days(tuple(sorted(term_values(DAY, term, stable_hash))))


def _from_end(term: str, before: str | None, *, is_workday: bool) -> DayTerm:
    if before is not None and not before.strip("0"):
        raise ValueError(f"day {quoted(term)}: the last day is {'LW' if is_workday else 'L'}")
    days_before = number(DAY, before) if before else 0
    return NearestWorkday(None, days_before) if is_workday else FromEnd(days_before)


def _weekday_terms(text: str, stable_hash: Hash) -> tuple[DayTerm, ...]:
    if text == "?":
        text = "*"
    terms = split_terms(WEEKDAY, text)
    return tuple(_weekday_term(term, stable_hash) for term in terms)


def _weekday_term(term: str, stable_hash: Hash) -> DayTerm:
    if term == "L":
        raise ValueError('weekday "L" needs a day: 5L is the last Friday of the month')
    weekday, hash_sign, nth = term.partition("#")
    if hash_sign:
        if nth == "L":
            raise ValueError(f"weekday {quoted(term)}: the last one is written {weekday}L")
        if nth not in ("1", "2", "3", "4", "5"):
            raise ValueError(f"weekday {quoted(term)}: a month has at most 5 of each (#1–#5)")
        return NthWeekday(number(WEEKDAY, weekday) % 7, int(nth))
    if term.endswith("L"):
        return NthWeekday(number(WEEKDAY, term[:-1]) % 7, None)
    return Weekdays(tuple(sorted(set(term_values(WEEKDAY, term, stable_hash)))))


def _never(day: str, month: str, weekday: str) -> str:
    on = "" if weekday in ("*", "?") else f" on weekday {weekday}"
    return f"never due: no date is day {day} of month {month}{on}"
