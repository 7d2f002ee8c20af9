"""Schedules in words. Where no neat phrase is surely right, the fields are spelled out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from rota.domain.ids import instant
from rota.domain.schedule.cron import Cron
from rota.domain.schedule.date_words import date_words
from rota.domain.schedule.expressions import DueSource
from rota.domain.schedule.phrases import amount, every
from rota.domain.schedule.sources import LAST_MICROS, Interval, Once
from rota.domain.schedule.time_words import is_every_hour, rate_words, time_words
from rota.domain.schedule.timetable import Timetable
from rota.domain.schedule.zoned_cron import ZonedCron
from rota.domain.schedule.zones import Zone


def describe(timetable: Timetable) -> str:
    """The whole schedule: `every day at 00:00 UTC`, `every 10 seconds`."""
    text = "; ".join(_source_words(source, timetable) for source in timetable.sources)
    if not all(_is_zoneless(source) for source in timetable.sources):
        is_short = timetable.zone.name == "UTC" and text[-1].isdigit()
        text += " UTC" if is_short else f", {timetable.zone.name}"
    if timetable.first > 0:
        text += f", from {_stamp(timetable.first, timetable.zone)}"
    if timetable.last < LAST_MICROS:
        text += f", until {_stamp(timetable.last, timetable.zone)}"
    return text + (", the first time only" if timetable.run_once else "")


def cron_words(cron: Cron) -> str:
    """A cron expression without its zone: `at 02:30 on Monday to Friday`."""
    times, dates = time_words(cron), date_words(cron.days)
    if times.startswith("at ") and not dates.startswith("on "):
        times = f"every day {times}"
    return f"{times} {dates}".rstrip()


def _source_words(source: DueSource, timetable: Timetable) -> str:
    match source:
        case ZonedCron():
            return cron_words(source.cron)
        case Interval():
            length = timedelta(microseconds=source.length)
            if timetable.after_previous:
                return f"{amount(length)} after the previous run ends"
            return every(length)
        case Once():
            return f"once at {_stamp(source.at, timetable.zone)}"
        case _:
            assert_never(source)


def _is_zoneless(source: DueSource) -> bool:
    """Whether the words are true whatever the zone."""
    if not isinstance(source, ZonedCron):
        return isinstance(source, Interval)
    cron = source.cron
    return is_every_hour(cron) and rate_words(cron) != "" and date_words(cron.days) == ""


def _stamp(micros: int, zone: Zone) -> str:
    local: datetime = zone.local(instant(micros)).replace(tzinfo=None)
    return local.isoformat(" ", "auto" if local.second or local.microsecond else "minutes")
