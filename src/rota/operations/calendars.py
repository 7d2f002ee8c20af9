"""Calendars as people define them, and their effect on the due times of jobs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.calendars import (
    Allowed,
    Blackout,
    Calendar,
    ReleasedAt,
    compile_calendar,
    end_of_blackout,
    in_words,
)
from rota.domain.errors import Conflict, Invalid, NotFound, Problem
from rota.domain.firing import fold_into_window
from rota.domain.jobfile import JobFile
from rota.domain.jobfile.calendars import calendar_document, unknown_calendars
from rota.domain.jobfile.export import Change, differences, digest_of
from rota.domain.spec import JobSpec
from rota.operations.engine import Engine
from rota.operations.specs import stamp
from rota.ports.records import JobQuery, NewCalendar, StoredCalendar

Ref = tuple[str, str]  # project and name

NEVER = "its calendars together leave it no time to run for five years"
_USERS_TOLD = 5


@dataclass(frozen=True, slots=True)
class CalendarChange:
    """Effect of saving a calendar."""

    name: str
    change: Change
    words: str
    etag: str  # of what was saved
    differences: tuple[str, ...] = ()  # of a changed one: "windows[0]  Sat → Sun"


@dataclass(frozen=True, slots=True)
class CalendarEffect:
    """A due time that a calendar skips or moves."""

    due: datetime
    calendar: str
    released_at: datetime | None  # when the run starts instead; None: there is none

    @property
    def words(self) -> str:
        what = "skipped" if self.released_at is None else f"runs {stamp(self.released_at)}"
        return f"{stamp(self.due)} is inside calendar {self.calendar}: {what}"


@dataclass(frozen=True, slots=True)
class PlannedCalendars:
    """The calendars that a file defines or uses, as applying it would leave them."""

    changes: tuple[CalendarChange, ...]
    new: tuple[NewCalendar, ...]
    versions: tuple[str, ...]  # of all that the plan looked at
    known: Mapping[Ref, Calendar]

    def blackouts_of(self, spec: JobSpec) -> tuple[Blackout, ...]:
        """Return the calendars of a job, compiled; all of them must be known."""
        return self.compiled(spec.project, _names_of(spec))

    def compiled(self, project: str, names: Sequence[str]) -> tuple[Blackout, ...]:
        """Return known calendars by name, compiled."""
        return tuple(compile_calendar(self.known[project, name]) for name in names)


def etag_of(calendar: Calendar) -> str:
    """Return the ETag of a calendar's content."""
    return digest_of(calendar_document(calendar))


async def find_calendar(engine: Engine, name: str, *, project: str) -> StoredCalendar:
    found = await engine.store.calendars(project, [name])
    if not found:
        raise NotFound(
            f"no calendar named {name!r} in project {project}",
            code="calendar_not_found",
            hint="rota calendar list shows them",
        )
    return found[0]


async def blackouts_of(engine: Engine, project: str, names: Sequence[str]) -> tuple[Blackout, ...]:
    """Compile the calendars of these names; `Invalid` if this server cannot read one."""
    found = await engine.store.calendars(project, names)
    return await asyncio.to_thread(_compiled, [each.calendar for each in found])


async def plan_calendar(
    engine: Engine, project: str, calendar: Calendar, *, if_match: str = ""
) -> CalendarChange:
    """Return what saving this calendar would change; write nothing."""
    return _change_of(calendar, await _replaced(engine, project, calendar, if_match))


async def save_calendar(
    engine: Engine, project: str, calendar: Calendar, *, actor: str, if_match: str = ""
) -> CalendarChange:
    """Create or change a calendar; due times from now on follow it."""
    old = await _replaced(engine, project, calendar, if_match)
    change = _change_of(calendar, old)
    if change.change is not Change.UNCHANGED:
        new = NewCalendar(project, calendar, old.version if old else 0)
        await engine.store.save_calendars([new], actor=actor)
    return change


async def delete_calendar(
    engine: Engine, calendar: StoredCalendar, *, actor: str, if_match: str = ""
) -> None:
    """Delete a calendar that no job and no cart template uses."""
    _require_match(if_match, calendar)
    await _refuse_used_by_carts(engine, calendar)
    await engine.store.delete_calendar(
        calendar.project,
        calendar.calendar.name,
        expected_version=calendar.version,
        actor=actor,
    )


async def plan_calendars(engine: Engine, file: JobFile, now: datetime) -> PlannedCalendars:
    """Plan a file's effect on calendars; `Invalid` if its jobs or others cannot use them."""
    stored = await _stored(engine, file)
    # Holidays take a while to be looked up, and leases are renewed on this loop.
    planned = await asyncio.to_thread(_planned, file, stored, now)
    in_file = {(entry.spec.project, entry.name) for entry in file.jobs}
    await _refuse_starving(engine, planned.new, planned.known, now, left_out=in_file)
    return planned


def calendar_effects(
    blackouts: Sequence[Blackout], due_times: Sequence[datetime], following: datetime | None
) -> tuple[CalendarEffect, ...]:
    """Return what calendars do to due times of a job; `following` is the next one after them."""
    answers = fold_into_window(blackouts, due_times, following)
    return tuple(
        CalendarEffect(due, answer.name, answer.at if isinstance(answer, ReleasedAt) else None)
        for due, answer in zip(due_times, answers, strict=True)
        if not isinstance(answer, Allowed)
    )


async def _replaced(
    engine: Engine, project: str, calendar: Calendar, if_match: str
) -> StoredCalendar | None:
    """Return the calendar to replace; refuse if the caller saw another, or a job could not run."""
    found = {each.calendar.name: each for each in await engine.store.calendars(project)}
    old = found.get(calendar.name)
    _require_match(if_match, old)
    known = {(project, name): each.calendar for name, each in found.items()}
    known[project, calendar.name] = calendar
    now = await engine.store.now()
    await _refuse_starving(engine, [NewCalendar(project, calendar)], known, now)
    return old


async def _refuse_used_by_carts(engine: Engine, calendar: StoredCalendar) -> None:
    """Refuse to delete a calendar that carts use: such a cart would stay closed for ever."""
    name = calendar.calendar.name
    users = [
        template.name
        for template in await engine.store.templates(calendar.project)
        if name in template.document.get("calendars", ())
    ]
    if users:
        raise Conflict(
            f"calendar {name} is used by carts",
            code="calendar_in_use",
            hint=f"take it out of them first: {', '.join(users[:_USERS_TOLD])}",
        )


async def _stored(engine: Engine, file: JobFile) -> dict[Ref, StoredCalendar]:
    projects = {entry.spec.project for entry in file.jobs if entry.calendars}
    is_used = any(entry.template.rules.calendars for entry in file.carts)
    projects |= {file.project} if file.calendars or is_used else set()
    found = [each for project in projects for each in await engine.store.calendars(project)]
    return {(each.project, each.calendar.name): each for each in found}


def _planned(
    file: JobFile, stored: Mapping[Ref, StoredCalendar], now: datetime
) -> PlannedCalendars:
    ours = {(file.project, calendar.name): calendar for calendar in file.calendars}
    changes = {ref: _change_of(calendar, stored.get(ref)) for ref, calendar in ours.items()}
    used = {(entry.spec.project, name) for entry in file.jobs for name in entry.calendars}
    used |= {(file.project, name) for it in file.carts for name in it.template.rules.calendars}
    planned = PlannedCalendars(
        changes=tuple(changes.values()),
        new=tuple(
            NewCalendar(ref[0], ours[ref], stored[ref].version if ref in stored else 0)
            for ref, change in changes.items()
            if change.change is not Change.UNCHANGED
        ),
        versions=tuple(
            f"{'/'.join(ref)}:{stored[ref].version}" for ref in used | set(ours) if ref in stored
        ),
        known={ref: found.calendar for ref, found in stored.items()} | ours,
    )
    problems = list(_problems_in(file, planned, now))
    if problems:
        count = "1 error" if len(problems) == 1 else f"{len(problems):,} errors"
        raise Invalid(f"the job file has {count}", problems)
    return planned


def _problems_in(file: JobFile, planned: PlannedCalendars, now: datetime) -> Iterator[Problem]:
    known: dict[str, list[str]] = defaultdict(list)
    for project, name in planned.known:
        known[project].append(name)
    for index, entry in enumerate(file.jobs):
        names = known[entry.spec.project]
        unknown = unknown_calendars(entry.calendars, entry.calendars_at.names, names)
        for problem in unknown:
            yield replace(problem, path=f"jobs[{index}].{problem.path}")
        if not unknown and end_of_blackout(planned.blackouts_of(entry.spec), now) is None:
            yield Problem(NEVER, f"jobs[{index}].calendars", entry.calendars_at.line)


async def _refuse_starving(
    engine: Engine,
    changed: Sequence[NewCalendar],
    known: Mapping[Ref, Calendar],
    now: datetime,
    *,
    left_out: Collection[Ref] = (),
) -> None:
    """Raise `Invalid` if a job that uses a changed calendar could not run any more."""
    for new in changed:
        query = JobQuery(project=new.project, calendar=new.calendar.name)
        users = {
            tuple(job.document["calendars"]): job.name  # one of each combination will do
            for job in await engine.store.jobs(query)
            if (job.project, job.name) not in left_out
        }
        for names, job in users.items():
            calendars = [known[new.project, name] for name in names]
            if await asyncio.to_thread(_leave_no_time, calendars, now):
                raise Invalid(f"job {job}: {NEVER}", hint="disable the job instead")


def _leave_no_time(calendars: Sequence[Calendar], now: datetime) -> bool:
    return end_of_blackout(_compiled(calendars), now) is None


def _compiled(calendars: Sequence[Calendar]) -> tuple[Blackout, ...]:
    return tuple(map(compile_calendar, calendars))


def _change_of(calendar: Calendar, old: StoredCalendar | None) -> CalendarChange:
    words, etag = in_words(compile_calendar(calendar)), etag_of(calendar)
    if old is None:
        return CalendarChange(calendar.name, Change.NEW, words, etag)
    if old.calendar == calendar:
        return CalendarChange(calendar.name, Change.UNCHANGED, words, etag)
    lines = differences(calendar_document(old.calendar), calendar_document(calendar))
    return CalendarChange(calendar.name, Change.CHANGED, words, etag, tuple(lines))


def _require_match(if_match: str, old: StoredCalendar | None) -> None:
    if if_match and (old is None or if_match != etag_of(old.calendar)):
        raise Conflict(
            "the calendar changed since you looked at it",
            code="etag_mismatch",
            hint="look at it again",
        )


def _names_of(spec: JobSpec) -> tuple[str, ...]:
    return spec.schedule.calendars if spec.schedule else ()
