"""The times of day of a cron expression in words: `at 02:30`, `every 15 minutes`.

Times are written as exactly as the expression: with seconds if it has a field for them.
"""

from __future__ import annotations

from datetime import timedelta

from rota.domain.schedule.cron import Cron
from rota.domain.schedule.phrases import every, listed, ranges

_MAX_TIMES = 4  # more than that are not listed one by one


def time_words(cron: Cron) -> str:
    """The shortest phrase that is surely right."""
    in_hour = [(minute, second) for minute in cron.minutes for second in cron.seconds]
    if len(cron.hours) * len(in_hour) <= _MAX_TIMES:
        times = [_clock(cron, hour, *time) for hour in cron.hours for time in in_hour]
        return f"at {listed(times)}"
    span = _hour_span(cron)
    if (rate := rate_words(cron)) and span is not None:
        return rate + span
    if span and len(in_hour) == 1:
        return f"every hour{span}"
    if (hours := _hour_words(cron)) and len(in_hour) <= _MAX_TIMES:
        return f"{hours} at {listed([_clock(cron, None, *time) for time in in_hour])}"
    if span == "" and len(cron.minutes) == 60:
        return f"every minute at second {ranges(cron.seconds)}"
    return _field_words(cron)


def rate_words(cron: Cron) -> str:
    """`every second`, `every 15 minutes` if that is all that minutes and seconds say, else ""."""
    if len(cron.minutes) == 60 and (step := _step(cron.seconds, 60)):
        return every(timedelta(seconds=step))
    if cron.seconds == (0,) and (step := _step(cron.minutes, 60)):
        return every(timedelta(minutes=step))
    return ""


def is_every_hour(cron: Cron) -> bool:
    return len(cron.hours) == 24


def _step(values: tuple[int, ...], size: int) -> int | None:
    """The distance of values that divide the whole size evenly, from 0 on."""
    step = size // len(values)
    return step if len(values) > 1 and values == tuple(range(0, size, step)) else None


def _hour_span(cron: Cron) -> str | None:
    """Which hours a rate is for: "" for all, None if they are not one stretch."""
    if is_every_hour(cron):
        return ""
    first, last = cron.hours[0], cron.hours[-1]
    if last - first != len(cron.hours) - 1:
        return None
    begin = _clock(cron, first, cron.minutes[0], cron.seconds[0])
    return f" from {begin} to {_clock(cron, last, cron.minutes[-1], cron.seconds[-1])}"


def _hour_words(cron: Cron) -> str:
    """`every hour`, `every 2 hours`, or "" if the hours are not evenly spread."""
    step = _step(cron.hours, 24)
    return every(timedelta(hours=step)) if step else ""


def _clock(cron: Cron, hour: int | None, minute: int, second: int) -> str:
    """`02:30`, with seconds if the expression has them; `:30` for any hour."""
    text = f"{'' if hour is None else f'{hour:02}'}:{minute:02}"
    return f"{text}:{second:02}" if cron.has_seconds else text


def _field_words(cron: Cron) -> str:
    words = [f"minute {ranges(cron.minutes)}", f"hour {ranges(cron.hours)}"]
    if cron.has_seconds:
        words.insert(0, f"second {ranges(cron.seconds)}")
    return f"whenever the clock shows {', '.join(words)}"
