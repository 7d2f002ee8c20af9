"""Cron expressions: five fields, six with seconds first, the four of the short form, or `@daily`.

Names, ranges, lists, steps, `L`, `W`, `#` and `?` as in Vixie and Quartz; weekday 0 and 7 are
Sunday. `H` stands for a value that is stable per job, as in Jenkins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rota.domain.ids import stable_fraction
from rota.domain.schedule import fields
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
from rota.domain.schedule.quoting import quoted

SHORTCUTS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
MAX_LENGTH = 1000
MAX_TERMS = 194  # one for every value of every field: more only repeat themselves

_HAS_HASH = re.compile(r"(?:^|[\s,])H")
_FROM_END = re.compile(r"L(?:-([0-9]+))?")
_WORKDAY = re.compile(r"([0-9]+)W")


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression, understood; every field ascending."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: DayRule
    has_seconds: bool  # a field for seconds was written
    is_elapsed: bool  # minute or hour starts with `*`: follows elapsed time through clock changes


def parse_cron(text: str, key: str) -> Cron:
    """Reads an expression; a ValueError says what is wrong.

    `key` is the job's identity, the seed of `H`.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text)} characters, at most {MAX_LENGTH} are read")
    normal = " ".join(text.upper().split())
    return _parse(normal, key if has_hash(normal) else "")


def has_hash(text: str) -> bool:
    """Whether the meaning depends on the job, by `H`."""
    return _HAS_HASH.search(text.upper()) is not None


@lru_cache(maxsize=4096)
def _parse(text: str, key: str) -> Cron:
    written = _expand_shortcut(text).split(" ")
    second, minute, hour, day, month, weekday = _six_fields(written)
    _check_terms(written)

    def stable_hash(field: str) -> float:
        return stable_fraction(key, "H", field)

    cron = Cron(
        text=text,
        seconds=fields.field_values(fields.SECOND, second, stable_hash),
        minutes=fields.field_values(fields.MINUTE, minute, stable_hash),
        hours=fields.field_values(fields.HOUR, hour, stable_hash),
        days=DayRule(
            months=fields.field_values(fields.MONTH, month, stable_hash),
            day_terms=_day_terms(day, stable_hash),
            weekday_terms=_weekday_terms(weekday, stable_hash),
            either=not (_is_open(day) or _is_open(weekday)),
        ),
        has_seconds=len(written) != 5,
        is_elapsed=minute.startswith("*") or hour.startswith("*"),
    )
    if dates_of(cron.days).is_empty():
        raise ValueError(_never(day, month, weekday))
    return cron


def _expand_shortcut(text: str) -> str:
    if not text.startswith("@"):
        return text
    if text in SHORTCUTS:
        return SHORTCUTS[text]
    if text == "@REBOOT":
        raise ValueError("a start of the machine is not a time: trigger the job instead")
    raise ValueError("not one of " + " ".join(SHORTCUTS).lower())


def _six_fields(written: list[str]) -> list[str]:
    match len(written):
        case 4:
            return [*written, "*", "*"]
        case 5:
            return ["0", *written]
        case 6:
            return written
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
    """Whether Vixie cron calls the field unrestricted: `*`, and also `*/2`."""
    return text.startswith(("*", "?"))


def _day_terms(text: str, stable_hash: fields.Hash) -> tuple[DayTerm, ...]:
    if text == "?":
        text = "*"
    return tuple(_day_term(term, stable_hash) for term in fields.split_terms(fields.DAY, text))


def _day_term(term: str, stable_hash: fields.Hash) -> DayTerm:
    if term == "LW":
        return NearestWorkday(None)
    if match := _FROM_END.fullmatch(term):
        return FromEnd(fields.number(fields.DAY, match[1]) if match[1] else 0)
    if match := _WORKDAY.fullmatch(term):
        return NearestWorkday(fields.number(fields.DAY, match[1]))
    return Days(tuple(sorted(fields.term_values(fields.DAY, term, stable_hash))))


def _weekday_terms(text: str, stable_hash: fields.Hash) -> tuple[DayTerm, ...]:
    if text == "?":
        text = "*"
    terms = fields.split_terms(fields.WEEKDAY, text)
    return tuple(_weekday_term(term, stable_hash) for term in terms)


def _weekday_term(term: str, stable_hash: fields.Hash) -> DayTerm:
    if term == "L":
        raise ValueError('weekday "L" needs a day: 5L is the last Friday of the month')
    weekday, hash_sign, nth = term.partition("#")
    if hash_sign:
        if nth not in ("1", "2", "3", "4", "5"):
            raise ValueError(f"weekday {quoted(term)}: a month has at most 5 of each (#1–#5)")
        return NthWeekday(fields.number(fields.WEEKDAY, weekday) % 7, int(nth))
    if term.endswith("L"):
        return NthWeekday(fields.number(fields.WEEKDAY, term[:-1]) % 7, None)
    return Weekdays(tuple(sorted(set(fields.term_values(fields.WEEKDAY, term, stable_hash)))))


def _never(day: str, month: str, weekday: str) -> str:
    on = "" if weekday in ("*", "?") else f" on weekday {weekday}"
    return f"never due: no date is day {day} of month {month}{on}"
