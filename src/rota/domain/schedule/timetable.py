"""Timetable: a job's due times, all of its expressions together, within its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.errors import Invalid, Problem, quoted
from rota.domain.ids import instant, micros, stable_fraction
from rota.domain.schedule.expressions import DueSource, Form, Setting, form_of, parse_expression
from rota.domain.schedule.sources import (
    LAST_MICROS,
    SECOND_MICROS,
    Interval,
    Intervals,
    Kind,
    Once,
    distinct_intervals,
)
from rota.domain.schedule.zones import Zone, load_zone
from rota.domain.spec import IntervalFrom, Schedule

_MICROSECOND = timedelta(microseconds=1)
Part = DueSource | Intervals  # what is counted by itself


@dataclass(frozen=True, slots=True)
class Timetable:
    """Due times of a job. Equal instants of several expressions are one due time.

    `run_once` does not shorten the timetable: `catch_up` ends it with the first due time that
    fires, whichever that is.
    """

    key: str  # the job's identity: the seed of jitter and spread
    zone: Zone
    sources: tuple[DueSource, ...]  # one per expression, in the order written
    first: int  # microseconds since 1970; no due time before
    last: int  # no due time after
    run_once: bool
    after_previous: bool  # `interval_from: completion`: each due time waits for the run before it
    spread: timedelta
    jitter: timedelta

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kind of each expression, in the order written."""
        return tuple(source.kind for source in self.sources)

    def next_after(self, time: datetime) -> datetime | None:
        """Return the first due time after `time`; None at the end of the schedule or of 9999."""
        due = self._next(micros(time))
        return None if due is None else instant(due)

    def last_at_or_before(self, time: datetime) -> datetime | None:
        """Return the last due time that is not later than `time`; None if there is none."""
        limit = min(micros(time), self.last)
        found = (source.last_at_or_before(limit) for source in self.sources)
        due = max((due for due in found if due is not None), default=-1)
        return instant(due) if due >= self.first else None

    def between(self, after: datetime, through: datetime, limit: int) -> tuple[datetime, ...]:
        """Return at most `limit` due times of after < due ≤ through, the earliest ones."""
        end = micros(through)
        found: list[datetime] = []
        due = self._next(micros(after))
        while due is not None and due <= end and len(found) < limit:
            found.append(instant(due))
            due = self._next(due)
        return tuple(found)

    def all_in(self, after: int, through: int) -> list[int]:
        """Return all due times of after < due ≤ through, in microseconds; far faster each."""
        begin, end = max(after, self.first - 1), min(through, self.last)
        if begin >= end:
            return []
        if len(self.sources) == 1:
            return self.sources[0].all_in(begin, end)
        return sorted({due for source in self.sources for due in source.all_in(begin, end)})

    def upcoming(self, after: datetime, limit: int) -> tuple[datetime, ...]:
        """Return the next due times that are known now: only one if the next depends on it."""
        known = 1 if self.run_once or self.after_previous else limit
        return self.between(after, instant(LAST_MICROS), min(limit, known))

    def count(self, after: datetime, through: datetime) -> int:
        """Count the due times of after < due ≤ through.

        By arithmetic for intervals and for the densest cron; what others add is walked. That is
        at most some thousand a day: `compile_schedule` refuses more.
        """
        begin, end = max(micros(after), self.first - 1), min(micros(through), self.last)
        if begin >= end:
            return 0
        by_size = sorted(parts_of(self.sources), key=lambda part: -part.count(begin, end))
        total = by_size[0].count(begin, end)
        for index, part in enumerate(by_size[1:], 1):
            others = by_size[:index]
            total += sum(not _is_due(others, due) for due in _walk(part, begin, end))
        return total

    def one_offs(self, after: datetime, through: datetime) -> tuple[datetime, ...]:
        """Return those of after < due ≤ through that an expression names by itself, in order."""
        begin, end = max(micros(after), self.first - 1), min(micros(through), self.last)
        named = {source.at for source in self.sources if isinstance(source, Once)}
        return tuple(instant(at) for at in sorted(named) if begin < at <= end)

    def release_at(self, due: datetime) -> datetime:
        """Return when a due run may start: shifted by spread and jitter, always the same."""
        if not self.spread and not self.jitter:
            return due
        shift = self.spread_delay
        if self.jitter:
            shift += self.jitter * stable_fraction(self.key, "jitter", str(micros(due)))
        return instant(min(micros(due) + shift // _MICROSECOND, LAST_MICROS))

    @property
    def spread_delay(self) -> timedelta:
        """Delay of each run by the job's spread."""
        return self.spread * stable_fraction(self.key, "spread")

    def after_completion(self, ended: datetime) -> datetime | None:
        """Return the due time that follows a run's end with `interval_from: completion`."""
        due = max(micros(ended) + self._interval, self.first)
        return instant(due) if due <= self.last else None

    def before_completion(self, due: datetime) -> datetime | None:
        """Return the end of the run that led to this due time; None: it follows no other."""
        ended = micros(due) - self._interval
        return instant(ended) if ended >= self.first else None

    @property
    def _interval(self) -> int:
        return next(source.length for source in self.sources if isinstance(source, Interval))

    def _next(self, after: int) -> int | None:
        after = max(after, self.first - 1)
        found = (source.next_after(after) for source in self.sources)
        due = min((due for due in found if due is not None), default=None)
        return due if due is not None and due <= self.last else None


def parts_of(sources: Sequence[DueSource]) -> list[Part]:
    """Return the sources, with all intervals as one."""
    intervals = [source for source in sources if isinstance(source, Interval)]
    others: list[Part] = [source for source in sources if not isinstance(source, Interval)]
    return [*others, Intervals(distinct_intervals(intervals))] if intervals else others


def _walk(part: Part, after: int, through: int) -> Iterator[int]:
    due = part.next_after(after)
    while due is not None and due <= through:
        yield due
        due = part.next_after(due)


def _is_due(parts: Sequence[Part], micros: int) -> bool:
    return any(part.count(micros - 1, micros) for part in parts)


MAX_EXPRESSIONS = 50
# What can be counted without holding up a server, however long it was away: see `Timetable.count`.
_MAX_INTERVALS = 8
_MAX_WALKED_A_DAY = 2_000
_DAYS = 366


def compile_schedule(schedule: Schedule, *, key: str, anchor: datetime) -> Timetable:
    """Compile the due times of a schedule; `Invalid` with every problem found.

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
    """Return whether a schedule names single times only, without compiling it."""
    forms = [form_of(text) for text in schedule.expressions]
    return schedule.run_once or all(form is Form.ONCE for form in forms)


def expression_path(schedule: Schedule, index: int) -> str:
    """Return where in a job the expression stands; a single one may be written without a list."""
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
    """Yield lists whose due times take too long to be told apart."""
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
