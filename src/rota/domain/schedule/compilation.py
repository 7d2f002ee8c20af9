"""Turns a schedule as written into its timetable, or into all that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rota.domain.errors import Invalid, Problem
from rota.domain.ids import micros
from rota.domain.schedule.expressions import DueSource, Form, Setting, form_of, parse_expression
from rota.domain.schedule.sources import LAST_MICROS, SECOND_MICROS, Interval, distinct_intervals
from rota.domain.schedule.timetable import Timetable, parts_of
from rota.domain.schedule.zones import Zone, load_zone
from rota.domain.spec import IntervalFrom, Schedule
from rota.domain.wording import quoted

MAX_EXPRESSIONS = 50
# What can be counted without holding up a server, however long it was away: see `Timetable.count`.
_MAX_INTERVALS = 8
_MAX_WALKED_A_DAY = 2_000
_DAYS = 366


def compile_schedule(schedule: Schedule, *, key: str, anchor: datetime) -> Timetable:
    """The due times of a schedule; `Invalid` with every problem found.

    `key` is the job's identity, the seed of `H`, jitter and spread. Intervals begin with
    `starts` where that is given, else one length after `anchor`.
    """
    problems = list(_bound_problems(schedule))
    zone = _zone(schedule, problems)
    setting = Setting(
        zone, schedule.dst, key, schedule.starts or anchor, is_anchor_due=bool(schedule.starts)
    )
    sources = _sources(schedule, setting, problems)
    problems += _density_problems(sources, micros(setting.anchor))
    if problems:
        raise Invalid("the schedule is not valid", problems)
    return Timetable(
        key=key,
        zone=zone,
        sources=sources,
        first=max(micros(schedule.starts), 0) if schedule.starts else 0,
        last=micros(schedule.ends) if schedule.ends else LAST_MICROS,
        run_once=schedule.run_once,
        after_previous=schedule.interval_from is IntervalFrom.COMPLETION,
        spread=schedule.spread,
        jitter=schedule.jitter,
    )


def is_one_off(schedule: Schedule) -> bool:
    """Whether a schedule names single times only, without compiling it."""
    forms = [form_of(text) for text in schedule.expressions]
    return schedule.run_once or all(form is Form.ONCE for form in forms)


def expression_path(schedule: Schedule, index: int) -> str:
    """Where in a job the expression stands; a single one may be written without a list."""
    return f"schedule[{index}]" if len(schedule.expressions) > 1 else "schedule"


def _zone(schedule: Schedule, problems: list[Problem]) -> Zone:
    try:
        return load_zone(schedule.timezone)
    except ValueError as error:
        problems.append(Problem(str(error), path="timezone"))
        return load_zone("UTC")


def _sources(
    schedule: Schedule, setting: Setting, problems: list[Problem]
) -> tuple[DueSource, ...]:
    sources = []
    for index, text in enumerate(schedule.expressions[:MAX_EXPRESSIONS]):
        try:
            sources.append(parse_expression(text, setting))
        except ValueError as error:
            path = expression_path(schedule, index)
            problems.append(Problem(f"{quoted(text)}: {error}", path))
    return tuple(sources)


def _density_problems(sources: Sequence[DueSource], start: int) -> Iterator[Problem]:
    """Lists whose due times take too long to be told apart."""
    intervals = distinct_intervals(it for it in sources if isinstance(it, Interval))
    if len(intervals) > _MAX_INTERVALS:
        yield Problem(
            f"{len(intervals)} intervals of which none is a multiple of another: "
            f"at most {_MAX_INTERVALS}",
            path="schedule",
        )
        return
    if len(sources) < 2:
        return
    counts = sorted(
        part.count(start, start + _DAYS * 86_400 * SECOND_MICROS) for part in parts_of(sources)
    )
    if sum(counts[:-1]) > _DAYS * _MAX_WALKED_A_DAY:
        yield Problem(
            "several expressions that are each due very often: all but the densest one may be due "
            f"{_MAX_WALKED_A_DAY:,} times a day together",
            path="schedule",
            hint="write them as one expression, or make two jobs of them",
        )


def _bound_problems(schedule: Schedule) -> Iterator[Problem]:
    count = len(schedule.expressions)
    if count == 0:
        yield Problem(
            "the list is empty: leave schedule out for a job on demand only", path="schedule"
        )
    if count > MAX_EXPRESSIONS:
        yield Problem(f"{count} expressions, at most {MAX_EXPRESSIONS} are read", path="schedule")
    if schedule.starts and schedule.ends and schedule.ends < schedule.starts:
        yield Problem("ends before it starts", path="ends")
    if schedule.interval_from is IntervalFrom.COMPLETION:
        forms = [form_of(text) for text in schedule.expressions]
        if forms != [Form.INTERVAL]:
            yield Problem("completion needs exactly one interval", path="interval_from")
