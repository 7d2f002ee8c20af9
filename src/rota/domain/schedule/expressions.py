"""Reads one entry of `schedule`: a cron expression, an interval, or a time, also in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import Enum, auto

from rota.domain.ids import micros
from rota.domain.quantities import UNIT_WORDS, read_amount
from rota.domain.schedule import cron
from rota.domain.schedule.cron import parse_cron
from rota.domain.schedule.sentences import parse_sentence, refuse_other_fields
from rota.domain.schedule.sources import LAST_MICROS, SECOND_MICROS, Interval, Once
from rota.domain.schedule.zoned_cron import LONGEST_GAP, ZonedCron
from rota.domain.schedule.zones import Zone, load_zone
from rota.domain.spec import Dst, Gap
from rota.domain.wording import quoted

OUTSIDE = "outside the years 1970 to 9999"

_YEAR_TOO_LARGE = re.compile(r"\+?[0-9]{5,}-", re.ASCII)
_TIME_OF_DAY = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?", re.ASCII)
_DAY = timedelta(days=1)


def iso_time(text: str) -> datetime:
    """An ISO 8601 time, or a date for its midnight; a ValueError says what is wrong."""
    if _YEAR_TOO_LARGE.match(text):
        raise ValueError(OUTSIDE)
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(f"not an ISO 8601 time such as 2026-06-01T22:00: {error}") from error


def read_instant(text: str, zone: Zone | None) -> datetime:
    """The instant that a text means; a ValueError says what is wrong.

    Without an offset it is on the clocks of `zone`; without a zone, it needs one.
    """
    try:
        written = iso_time(text.strip())
        if written.tzinfo is not None:
            return written.astimezone(UTC)
        if zone is not None:
            return zone.instant(written)
    except OverflowError as error:
        raise ValueError(f"{quoted(text)}: {OUTSIDE}") from error
    except ValueError as error:
        raise ValueError(f"{quoted(text)}: {error}") from error
    raise ValueError(f"{quoted(text)} has no offset: add Z or +01:00")


def read_coming_instant(text: str, zone: Zone | None, now: datetime) -> datetime:
    """`read_instant`, and `11:00` for the next time that the zone's clocks show it."""
    if zone is None or not _TIME_OF_DAY.fullmatch(text.strip()):
        return read_instant(text, zone)
    clock = _time_of_day(text)
    today = zone.local(now).date()
    found = zone.instant(datetime.combine(today, clock))
    return found if found > now else zone.instant(datetime.combine(today + _DAY, clock))


def _time_of_day(text: str) -> time:
    try:
        return time.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{quoted(text)}: {error}") from error


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
    """How an expression is written, by the look of it; what looks like nothing else is cron."""

    CRON = auto()
    SENTENCE = auto()  # the words for a cron expression
    INTERVAL = auto()
    ONCE = auto()


@dataclass(frozen=True, slots=True)
class Setting:
    """What an expression needs to know besides its text."""

    zone: Zone
    dst: Dst
    key: str  # the job's identity: the seed of `H`
    anchor: datetime  # what intervals count from
    is_anchor_due: bool  # somebody named that instant: it is the first due time


def parse_expression(text: str, setting: Setting) -> DueSource:
    """The due times of one expression; a ValueError says what is wrong."""
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
    """How a text is written, whether or not it can be read."""
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
    """An expression without the zone that is written with it, and that zone; "": none is.

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
    """All expressions of a schedule are in its one zone, so an expression can only repeat it."""
    if load_zone(name).name != zone.name:
        raise ValueError(
            f"names the zone {name}, but the schedule is in {zone.name}: write {quoted(alone)}"
            f" and timezone: {name} (rota cron: --tz {name})"
        )


def parse_interval(text: str) -> timedelta:
    """`30s`, `every 10s`, `@every 5m`, `every 5 minutes`, `PT1H`; not shorter than 100 ms."""
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
    """The instant at which the zone's clocks first show the time, or the end of its gap."""
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
