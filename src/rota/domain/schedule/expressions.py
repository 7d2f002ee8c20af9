"""Parser of one entry of `schedule`: a cron expression, an interval, or a time, also in words."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum, auto

from rota.domain.errors import quoted
from rota.domain.ids import micros
from rota.domain.quantities import UNIT_WORDS, read_amount
from rota.domain.schedule import cron
from rota.domain.schedule.cron import parse_cron
from rota.domain.schedule.sentences import parse_sentence, refuse_other_fields
from rota.domain.schedule.sources import LAST_MICROS, SECOND_MICROS, Interval, Once
from rota.domain.schedule.zoned_cron import LONGEST_GAP, ZonedCron
from rota.domain.schedule.zones import Zone, load_zone
from rota.domain.spec import Dst, Gap

OUTSIDE = "outside the years 1970 to 9999"

_YEAR_TOO_LARGE = re.compile(r"\+?[0-9]{5,}-", re.ASCII)
_CLOCK = r"(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)"
_TIME_OF_DAY = re.compile(_CLOCK, re.ASCII)
_DAY = re.compile(rf"(?P<day>today|yesterday|tomorrow)(?:[ t]{_CLOCK})?", re.ASCII)
# What looks like a length of time: neither a time with its marks nor a date of eight digits.
_AWAY = re.compile(
    r"(?P<before>in |\+|-)?(?![0-9]{8})(?P<length>p?t?[0-9][^:+-]*?)(?P<ago> ago)?", re.ASCII
)
_SPACED_OFFSET = re.compile(r"(?<=[0-9]) (?=[+-][0-9]{2}(?::?[0-9]{2})?$)", re.ASCII)
_UTC = re.compile(r"(?<=[0-9]) ?utc$", re.ASCII)
_PARTS = re.compile(
    rf"(?P<year>[0-9]{{4}})-(?P<month>[0-9]{{2}})-(?P<day>[0-9]{{2}})(?:[ t]{_CLOCK})?",
    re.ASCII | re.IGNORECASE,
)
_CLOCKS_SHOW = "write 00:00 to 23:59"
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WHAT_FITS = "write 5m, yesterday, today 14:00, 2026-11-18 or 2026-11-18T14:00+01:00"


class Looking(Enum):
    """Direction in which a length of time or a time of day counts from now."""

    BACK = auto()
    AHEAD = auto()


@dataclass(frozen=True, slots=True)
class Reading:
    """Context on which the meaning of a written time depends."""

    now: datetime
    zone: Zone | None  # None: days and times without an offset are refused
    looking: Looking


def iso_time(text: str) -> datetime:
    """Parse an ISO 8601 time, or a date for its midnight; a ValueError says what is wrong."""
    if _YEAR_TOO_LARGE.match(text):
        raise ValueError(OUTSIDE)
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        why = _out_of_range(text)
        reason = f": {why}" if why else ""
        raise ValueError(f"not an ISO 8601 time such as 2026-06-01T22:00{reason}") from error


def _out_of_range(text: str) -> str:
    """Return which part of a time there is not; "": something else is wrong with it."""
    found = _PARTS.match(text)
    if found is None:
        return ""
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    if not 1 <= month <= 12:
        return f"there is no month {month}"
    if year and not 1 <= day <= monthrange(year, month)[1]:
        return f"{year}-{month:02} has no day {day}"
    clock = found["clock"]
    return f"{clock} is no time of day: {_CLOCKS_SHOW}" if clock and not _is_shown(clock) else ""


def _is_shown(clock: str) -> bool:
    """Return whether clocks ever show a time of day."""
    hour, *others = (int(part) for part in clock.split(":"))
    return hour <= 23 and all(part <= 59 for part in others)


def read_instant(text: str, reading: Reading) -> datetime:
    """Parse an instant, in UTC; a ValueError says what is wrong and what fits."""
    written = " ".join(text.lower().split())
    try:
        return _relative(written, reading) or _absolute(written, reading.zone)
    except OverflowError as error:
        raise ValueError(f"{quoted(text)}: {OUTSIDE}") from error
    except ValueError as error:
        raise ValueError(f"{quoted(text)}: {error}") from error


def read_absolute(text: str) -> datetime:
    """Parse the instant of a document: an ISO 8601 time with its offset, whenever it is read."""
    try:
        return _absolute(" ".join(text.lower().split()), None)
    except OverflowError as error:
        raise ValueError(f"{quoted(text)}: {OUTSIDE}") from error
    except ValueError as error:
        raise ValueError(f"{quoted(text)}: {error}") from error


def is_relative(text: str) -> bool:
    """Return whether a time that can be read means another instant when it is read later."""
    written = " ".join(text.lower().split())
    patterns = (_DAY, _TIME_OF_DAY, _AWAY)
    return written == "now" or any(each.fullmatch(written) for each in patterns)


def _relative(written: str, reading: Reading) -> datetime | None:
    """Parse a text that counts from now; None if it does not."""
    if written == "now":
        return reading.now
    if found := _DAY.fullmatch(written):
        zone = _needed(reading.zone)
        day = zone.local(reading.now).date() + timedelta(days=_DAYS[found["day"]])
        return _on(zone, day, _time_of_day(found["clock"] or "00:00"))
    if found := _TIME_OF_DAY.fullmatch(written):
        return _nearest(_time_of_day(found["clock"]), reading)
    if found := _AWAY.fullmatch(written):
        return _away(found, reading)
    return None


def _away(found: re.Match[str], reading: Reading) -> datetime:
    if found["before"] and found["ago"]:
        raise ValueError("one of in, ago, + and -, not two")
    length = read_amount(found["length"])
    if found["ago"] or found["before"] == "-":
        return reading.now - length
    is_ahead = bool(found["before"]) or reading.looking is Looking.AHEAD
    return reading.now + length if is_ahead else reading.now - length


def _nearest(clock: time, reading: Reading) -> datetime:
    """Return the last or the next instant at which clocks show a time of day."""
    zone = _needed(reading.zone)
    today = zone.local(reading.now).date()
    found = _on(zone, today, clock)
    if reading.looking is Looking.AHEAD:
        return found if found > reading.now else _on(zone, today + timedelta(days=1), clock)
    return found if found <= reading.now else _on(zone, today - timedelta(days=1), clock)


def _absolute(written: str, zone: Zone | None) -> datetime:
    if not written[:1].isdigit() and written[:1] != "+":
        raise ValueError(f"not a time: {_WHAT_FITS}")
    at = iso_time(_UTC.sub("z", _SPACED_OFFSET.sub("", written)))
    return _needed(zone).instant(at) if at.tzinfo is None else at.astimezone(UTC)


def _needed(zone: Zone | None) -> Zone:
    if zone is None:
        raise ValueError("has no offset: add Z or +01:00")
    return zone


def _on(zone: Zone, day: date, clock: time) -> datetime:
    return zone.instant(datetime.combine(day, clock))


def _time_of_day(text: str) -> time:
    """Parse `9:00`, `09:00:30`."""
    if not _is_shown(text):
        raise ValueError(f"{text} is no time of day: {_CLOCKS_SHOW}")
    return time.fromisoformat(f"0{text}" if text[1] == ":" else text)


SHORTEST_INTERVAL = timedelta(milliseconds=100)
_MICROSECOND = timedelta(microseconds=1)
_STARTS_LIKE_A_TIME = re.compile(r"[+-]?[0-9]{4,}-|[0-9]{8}(?:T|$)", re.ASCII | re.IGNORECASE)
_AMOUNTS = re.compile(rf"(?:[0-9.]+\s*(?:ms|[wdhms]|{UNIT_WORDS})\s*)+", re.ASCII | re.IGNORECASE)
_EVERY = re.compile(r"@?every\s+", re.ASCII | re.IGNORECASE)
_ONCE_AT = re.compile(r"once\s+at\s+", re.ASCII | re.IGNORECASE)
_IN_WORDS = re.compile(r"(?:every|at|whenever|once)\s", re.ASCII | re.IGNORECASE)
# Every so often, but at certain times or on certain dates: that is a matter of the clock.
_BY_THE_CLOCK = re.compile(r"\s(?:at|on|in|from)\s|[,;]", re.ASCII | re.IGNORECASE)
_AFTER_RUN = re.compile(r"\safter\s+the\s+previous\s+run\s+ends", re.ASCII | re.IGNORECASE)
_ZONE_BEFORE = re.compile(r"(?:CRON_)?TZ=(\S*)\s+(.*)", re.ASCII | re.IGNORECASE | re.DOTALL)
_ZONE_AFTER = re.compile(r"(.*?)(?:,\s*([a-z]\S*)|,?\s+(utc))", re.ASCII | re.IGNORECASE)


DueSource = ZonedCron | Interval | Once


class Form(Enum):
    """Form of an expression, by the look of it; what looks like nothing else is cron."""

    CRON = auto()
    SENTENCE = auto()  # the words for a cron expression
    INTERVAL = auto()
    ONCE = auto()


@dataclass(frozen=True, slots=True)
class Setting:
    """Context of an expression besides its text."""

    zone: Zone
    dst: Dst
    key: str  # the job's identity: the seed of `H`
    anchor: datetime  # what intervals count from
    is_anchor_due: bool  # somebody named that instant: it is the first due time


def parse_expression(text: str, setting: Setting) -> DueSource:
    """Parse the due times of one expression; a ValueError says what is wrong."""
    alone, zone = split_zone(text.strip())
    if _IN_WORDS.match(alone) or _AFTER_RUN.search(alone):
        refuse_other_fields(alone)
    if zone:
        _check_zone(zone, alone, setting.zone)
    match _form(alone):
        case Form.ONCE:
            return Once(_once(_ONCE_AT.sub("", alone), setting))
        case Form.INTERVAL:
            length = parse_interval(alone) // _MICROSECOND
            first = micros(setting.anchor) + (0 if setting.is_anchor_due else length)
            return Interval(length, first)
        case Form.SENTENCE:
            return ZonedCron(parse_sentence(alone), setting.zone, setting.dst)
        case Form.CRON:
            return ZonedCron(parse_cron(alone, setting.key), setting.zone, setting.dst)


def form_of(text: str) -> Form:
    """Return the form of a text, whether or not it can be read."""
    return _form(split_zone(text.strip())[0])


def _form(text: str) -> Form:
    if _STARTS_LIKE_A_TIME.match(text) or _ONCE_AT.match(text):
        return Form.ONCE
    if text.startswith("@"):
        return Form.INTERVAL if _EVERY.match(text) else Form.CRON
    if _IN_WORDS.match(text) and not _EVERY.match(text):
        return Form.SENTENCE
    if _EVERY.match(text):
        return Form.SENTENCE if _BY_THE_CLOCK.search(text) else Form.INTERVAL
    if _AMOUNTS.fullmatch(text) or len(text.split()) <= 1:
        return Form.INTERVAL
    return Form.CRON


def split_zone(text: str) -> tuple[str, str]:
    """Split an expression from the zone that is written with it; "": none is.

    `CRON_TZ=Europe/London 23 5 * * *` comes from other schedulers, `every day at 02:00 UTC` from
    Rota's own words.
    """
    if before := _ZONE_BEFORE.fullmatch(text):
        return before[2], before[1]
    after = _ZONE_AFTER.fullmatch(text) if _IN_WORDS.match(text) else None
    if after is None or cron.upper(after[2] or "") in {
        *cron.MONTH.names,
        *cron.WEEKDAY.names,
    }:
        return text, ""
    return after[1], after[2] or "UTC"


def _check_zone(name: str, alone: str, zone: Zone) -> None:
    """Check that an expression only repeats the schedule's one zone."""
    if load_zone(name).name != zone.name:
        raise ValueError(
            f"names the zone {name}, but the schedule is in {zone.name}: write {quoted(alone)}"
            f" and timezone: {name} (rota cron: --tz {name})"
        )


def parse_interval(text: str) -> timedelta:
    """Parse `30s`, `every 10s`, `@every 5m`, `every 5 minutes`, `PT1H`; not shorter than 100 ms."""
    if not text:
        raise ValueError("nothing is written: put a cron expression, an interval or a time")
    prefix = _EVERY.match(text)
    try:
        interval = read_amount(text[prefix.end() :] if prefix else text)
    except ValueError as error:
        if prefix:
            raise
        raise ValueError(
            'not a schedule: write cron ("0 2 * * *"), an interval ("30s"),'
            ' a time ("2026-06-01T22:00Z") or @daily'
        ) from error
    if interval < SHORTEST_INTERVAL:
        raise ValueError("too short: the smallest interval is 100ms")
    return interval


def _once(text: str, setting: Setting) -> int:
    written = iso_time(text)
    try:
        at = _on_clocks(written, setting) if written.tzinfo is None else micros(written)
    except OverflowError as error:
        raise ValueError(OUTSIDE) from error
    if not 0 <= at <= LAST_MICROS:
        raise ValueError(OUTSIDE)
    return at


def _on_clocks(written: datetime, setting: Setting) -> int:
    """Return the instant at which the zone's clocks first show the time, or the end of its gap."""
    zone = setting.zone
    instant = zone.instant(written)
    at = micros(instant)
    is_shown = zone.shows(instant, written)
    if not is_shown and _is_absent(setting, at):
        raise ValueError(f"never comes: clocks in {quoted(zone.name)} are put forward past it")
    return at


def _is_absent(setting: Setting, end_of_gap: int) -> bool:
    shift = setting.zone.period_at(end_of_gap // SECOND_MICROS).shift
    return setting.dst.gap is Gap.SKIP or shift > LONGEST_GAP
