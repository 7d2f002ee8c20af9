"""Parser of cron schedules in words: `every day at 02:00`, `at 09:00 on Monday to Friday`.

The grammar is that of `time_words` and `date_words`, so that whatever Rota prints about a cron
expression can be written into a job file. Intervals (`every 5 minutes`) and single times are read
where they are read without words, in `expressions`. All matching is done in upper case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from rota.domain.errors import quoted
from rota.domain.schedule import cron
from rota.domain.schedule.cron import MAX_LENGTH, Cron, CronFields, cron_of

_FORMS = (
    'write it as rota cron explain would: "every day at 02:00", "at 09:00 on Monday to Friday",'
    ' "every 15 minutes from 09:00 to 17:45"'
)
_CLOCK_PARTS = re.compile(r"([0-9]{0,2}):([0-9]{2})(?::([0-9]{2}))?")
_TIMES_AND_DATES = re.compile(r"(.+?)(?: ((?:ON|IN) .+))?")
_JOINT = re.compile(r", | AND ")
_OR = re.compile(r" (OR|IF ALSO) (?=ON )")
_AND_ON = re.compile(r" AND (?=ON )")
_CLAUSE = re.compile(r"ON (?:DAYS? |(?![0-9]))(.+?)(?: (?:OF|IN) (.+))?")
_NUMBERS = re.compile(r"([0-9]+)(?: TO ([0-9]+))?")
_NAMES = re.compile(r"([A-Z]{3,})(?: TO ([A-Z]{3,}))?")
_NTH = {"FIRST": "#1", "SECOND": "#2", "THIRD": "#3", "FOURTH": "#4", "FIFTH": "#5", "LAST": "L"}
# What a term of the day field, and one of the weekday field, is called in words.
_DAY_TERMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"([0-9]+)"), r"\1"),
    (re.compile(r"([0-9]+) TO ([0-9]+)"), r"\1-\2"),
    (re.compile(r"THE LAST DAY"), "L"),
    (re.compile(r"THE LAST DAY BUT ([0-9]+)"), r"L-\1"),
    (re.compile(r"THE LAST WORKDAY"), "LW"),
    (re.compile(r"THE WORKDAY NEAREST DAY ([0-9]+)"), r"\1W"),
    (re.compile(r"THE WORKDAY NEAREST THE LAST DAY BUT ([0-9]+)"), r"L-\1W"),
)
_NTH_WEEKDAY = re.compile(rf"THE ({'|'.join(_NTH)}) ([A-Z]+)")
# Words of a whole schedule that stand for other fields of the job, and those fields.
_OTHER_FIELDS = (
    (re.compile(r", THE FIRST TIME ONLY"), "run_once: true"),
    (re.compile(r", FROM [0-9]{4}-"), "starts: TIME"),
    (re.compile(r", UNTIL [0-9]{4}-"), "ends: TIME"),
    (re.compile(r" AFTER THE PREVIOUS RUN ENDS"), "interval_from: completion"),
)


@dataclass(frozen=True, slots=True)
class _Times:
    """Fields of the time of day that a phrase stands for."""

    second: str
    minute: str
    hour: str
    has_seconds: bool = False
    is_elapsed: bool = False


@dataclass(frozen=True, slots=True)
class _Dates:
    day: str = "*"
    month: str = "*"
    weekday: str = "*"
    either: bool = False


@dataclass(frozen=True, slots=True)
class _Clock:
    """A time of day as written, in digits; "" for what was not."""

    hour: str
    minute: str
    second: str

    @classmethod
    def read(cls, text: str) -> _Clock:
        if not (match := _CLOCK_PARTS.fullmatch(text)):
            raise ValueError(f"{quoted(text)} is not a time of day such as 02:30")
        return cls(match[1], match[2], match[3] or "")


def parse_sentence(text: str) -> Cron:
    """Read a cron schedule in words; a ValueError says what is wrong."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text)} characters, at most {MAX_LENGTH} are read")
    try:
        return _parse(_normal(text))
    except ValueError as error:
        raise ValueError(cron.as_typed(str(error), text)) from None


def refuse_other_fields(text: str) -> None:
    """Refuse words about a whole schedule: each of these is another field of the job."""
    normal = _normal(text)
    if ";" in normal:
        raise ValueError("several schedules in one text: write them as a list")
    for words, field in _OTHER_FIELDS:
        if found := words.search(normal):
            part = normal[found.start() :].strip(", ").lower()
            raise ValueError(f"{quoted(part)} is not part of an expression: write {field}")


def _normal(text: str) -> str:
    return " ".join(cron.upper(text).split())


@lru_cache(maxsize=4096)
def _parse(text: str) -> Cron:
    split = _TIMES_AND_DATES.fullmatch(text)
    times = _times(split[1]) if split else None
    if split is None or times is None:
        raise ValueError(f"not a schedule in words: {_FORMS}")
    dates = _dates(split[2]) if split[2] else _Dates()
    if split[1].startswith("EVERY DAY ") and (dates.day, dates.weekday) != ("*", "*"):
        raise ValueError(f'"every day" is not {quoted(split[2].lower())}: leave out one of them')
    written = CronFields(
        *(times.second, times.minute, times.hour, dates.day, dates.month, dates.weekday),
        either=dates.either,
        has_seconds=times.has_seconds,
        is_elapsed=times.is_elapsed,
    )
    return cron_of(text, written, key="")


def _times(text: str) -> _Times | None:
    """Parse the time of day; None if it is in none of the forms."""
    for form, read in _TIME_FORMS:
        if match := form.fullmatch(text):
            return read(match)
    return None


def _at(match: re.Match[str]) -> _Times:
    """Parse `at 02:00 and 14:00`."""
    return _at_clocks(_JOINT.split(match["clocks"]))


def _at_marks(match: re.Match[str]) -> _Times:
    """Parse `every 2 hours at :15 and :45`."""
    times = _at_clocks(_JOINT.split(match["marks"]))
    step = _step(match["count"], 24, "a day")
    return _Times(times.second, times.minute, f"*/{step}", times.has_seconds, is_elapsed=True)


def _at_clocks(texts: list[str]) -> _Times:
    """Return fields that together give exactly these times, which not every list of times has."""
    clocks = {_Clock.read(text) for text in texts}
    hours = sorted({clock.hour for clock in clocks})
    minutes = sorted({clock.minute for clock in clocks})
    seconds = sorted({clock.second for clock in clocks})
    is_mixed = any("" in parts and len(parts) > 1 for parts in (hours, seconds))
    if is_mixed or clocks != {_Clock(*parts) for parts in product(hours, minutes, seconds)}:
        raise ValueError(
            "no single expression has these times alone: write a list, each time for itself"
        )
    return _Times(
        ",".join(seconds) or "0", ",".join(minutes), ",".join(hours), has_seconds=seconds != [""]
    )


def _rate(match: re.Match[str]) -> _Times:
    """Parse `every 15 minutes` on certain dates, or `from 09:00 to 17:45`."""
    is_seconds = match["unit"] == "SECOND"
    step = _step(match["count"], 60, "a minute" if is_seconds else "an hour")
    second, minute = (f"*/{step}", "*") if is_seconds else ("0", f"*/{step}")
    if match["first"] is None:
        return _Times(second, minute, "*", is_seconds, is_elapsed=True)
    first, last = _Clock.read(match["first"]), _Clock.read(match["last"])
    last_minute, last_second = (59, 60 - step) if is_seconds else (60 - step, 0)
    begins, ends = f"{first.hour}:00", f"{last.hour}:{last_minute:02}"
    has_seconds = is_seconds or first.second != ""
    if has_seconds:
        begins, ends = f"{begins}:00", f"{ends}:{last_second:02}"
    if (match["first"], match["last"]) != (begins, ends):
        raise ValueError(f"cron counts in whole hours: write from {begins} to {ends}")
    return _Times(second, minute, f"{first.hour}-{last.hour}", has_seconds, is_elapsed=True)


def _hourly(match: re.Match[str]) -> _Times:
    """Parse `every hour from 09:30 to 17:30`."""
    first, last = _Clock.read(match["first"]), _Clock.read(match["last"])
    if (first.minute, first.second) != (last.minute, last.second):
        ends = match["first"].replace(first.hour, last.hour, 1)
        raise ValueError(f"every hour from {match['first']} ends with {ends}")
    hours = f"{first.hour}-{last.hour}"
    return _Times(first.second or "0", first.minute, hours, has_seconds=first.second != "")


def _at_seconds(match: re.Match[str]) -> _Times:
    """Parse `every minute at second 10 and 30`."""
    return _Times(_listed(match["seconds"]), "*", "*", has_seconds=True, is_elapsed=True)


def _shown(match: re.Match[str]) -> _Times:
    """Parse `whenever the clock shows minute 5, hour 2, 5 and 8`."""
    second = _listed(match["second"]) if match["second"] else "0"
    hours, minutes = _listed(match["hour"]), _listed(match["minute"])
    return _Times(second, minutes, hours, has_seconds=match["second"] is not None)


def _step(count: str | None, size: int, whole: str) -> int:
    step = int(count) if count else 1
    if not step or size % step:
        raise ValueError(
            f"{step} does not divide {whole}, and a rate by the clock begins anew there"
        )
    return step


def _listed(text: str) -> str:
    """Convert `1 to 5, 8 and 9` to a field of cron."""
    return ",".join(_range(words) for words in _JOINT.split(text))


def _range(words: str) -> str:
    """Convert `1 to 5` or `Monday to Friday` to a term of cron."""
    match = _NUMBERS.fullmatch(words) or _NAMES.fullmatch(words)
    if not match:
        raise ValueError(f"{quoted(words.lower())} is neither a number nor a name")
    return match[1] if match[2] is None else f"{match[1]}-{match[2]}"


_SPAN = r"FROM (?P<first>\S+) TO (?P<last>\S+)"
_TIME_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _Times]], ...] = (
    (re.compile(r"(?:EVERY DAY )?AT (?P<clocks>[^:].*)"), _at),
    (re.compile(r"EVERY (?:HOUR|(?P<count>[0-9]{1,4}) HOURS) AT (?P<marks>:.+)"), _at_marks),
    (re.compile(r"EVERY MINUTE AT SECOND (?P<seconds>.+)"), _at_seconds),
    (re.compile(rf"EVERY HOUR {_SPAN}"), _hourly),
    (
        re.compile(
            r"EVERY (?:(?P<count>[0-9]{1,4}) (?=[A-Z]+S\b))?(?P<unit>SECOND|MINUTE)S?"
            rf"(?: {_SPAN})?"
        ),
        _rate,
    ),
    (
        re.compile(
            r"WHENEVER THE CLOCK SHOWS (?:SECOND (?P<second>.+?), )?MINUTE (?P<minute>.+?),"
            r" HOUR (?P<hour>.+)"
        ),
        _shown,
    ),
)


def _dates(text: str) -> _Dates:
    if text.startswith("IN "):
        return _Dates(month=_listed(text.removeprefix("IN ")))
    first, *more = _OR.split(text)
    sides = [_side(first), *(_side(side) for side in more[1::2])]
    days = [side.day for side in sides if side.day != "*"]
    weekdays = [side.weekday for side in sides if side.weekday != "*"]
    if len(days) > 1 or len(weekdays) > 1:
        raise ValueError("days or weekdays are listed once: on days 1 and 15, on Monday and Friday")
    return _Dates(
        "".join(days) or "*",
        _same_months(side.month for side in sides),
        "".join(weekdays) or "*",
        either="OR" in more,
    )


def _side(text: str) -> _Dates:
    """Parse one side of an `or`: days, or weekdays with and without their number."""
    parts = _AND_ON.split(text)
    clauses = [match for part in parts if (match := _CLAUSE.fullmatch(part))]
    if len(clauses) < len(parts):
        raise ValueError('numbers are days: write "on day 5", "on days 1 to 7"')
    terms = [term for clause in clauses for term in _JOINT.split(clause[1])]
    months = _same_months("*" if it[2] in (None, "THE MONTH") else _listed(it[2]) for it in clauses)
    days = [day for term in terms if (day := _day_term(term))]
    if not days:
        return _Dates(month=months, weekday=",".join(map(_weekday_term, terms)))
    if len(days) < len(terms):
        raise ValueError('days and weekdays together: write "or on", as in "on day 1 or on Monday"')
    return _Dates(month=months, day=",".join(days))


def _same_months(months: Iterable[str]) -> str:
    found = set(months)
    if len(found) != 1:
        raise ValueError("all dates of an expression are in the same months: write a list")
    return found.pop()


def _day_term(words: str) -> str:
    """Return a term of the day field, or "" if the words mean none."""
    return next((form.sub(term, words) for form, term in _DAY_TERMS if form.fullmatch(words)), "")


def _weekday_term(words: str) -> str:
    if match := _NTH_WEEKDAY.fullmatch(words):
        return match[2] + _NTH[match[1]]
    return _range(words)
