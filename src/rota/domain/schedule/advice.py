"""Schedules that are valid but may not mean what their author thinks."""

from __future__ import annotations

from rota.domain.errors import Problem
from rota.domain.schedule.compilation import expression_path
from rota.domain.schedule.cron import has_hash, parse_cron
from rota.domain.schedule.expressions import kind_of_text
from rota.domain.schedule.quoting import quoted
from rota.domain.schedule.words import cron_words
from rota.domain.spec import Schedule

_DAILY = "every day at "


def warnings(schedule: Schedule, *, key: str = "") -> list[Problem]:
    """What is worth a look in a valid schedule: four fields where five were likely meant."""
    return [
        Problem(_four_field_warning(text, key), expression_path(schedule, index), warning=True)
        for index, text in enumerate(schedule.expressions)
        if len(text.split()) == 4 and kind_of_text(text.strip()) is None
    ]


def hash_warnings(schedule: Schedule) -> list[Problem]:
    """Where due times depend on which job has the schedule, and that is not known."""
    return [
        Problem(
            f"{quoted(text)}: H depends on the job's name, so a job's own times are others",
            expression_path(schedule, index),
            hint="name the job: --job NAME, or job=NAME in REST",
            warning=True,
        )
        for index, text in enumerate(schedule.expressions)
        if kind_of_text(text.strip()) is None and has_hash(text)
    ]


def _four_field_warning(text: str, key: str) -> str:
    meaning = cron_words(parse_cron(text, key))
    message = f"{quoted(text)} has 4 fields: second minute hour day = {meaning}."
    five = f"{text} *"
    try:
        words = cron_words(parse_cron(five, key))
    except ValueError:
        return message
    is_daily = words.startswith(_DAILY)
    likely = f"{words.removeprefix(_DAILY)} daily" if is_daily else words
    return f"{message} For {likely}: {quoted(five)}"
