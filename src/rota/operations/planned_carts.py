"""Carts of a job file: the effect of applying it on templates. It never starts one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from rota.domain.calendars import end_of_blackout
from rota.domain.carts.definition import CartTemplate, ItemsFile, template_in_words
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import CartEntry, JobFile, cart_document, read_job
from rota.domain.jobfile.carts import Referred, check_inputs_of_items, unknown_references
from rota.domain.jobfile.export import Change, difference, differences, digest_of
from rota.domain.jobfile.text import At, Report
from rota.domain.schedule import Timetable, describe
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import JobSpec
from rota.operations.calendars import NEVER
from rota.operations.engine import Engine
from rota.operations.planned_limits import Circumstances
from rota.operations.previews import schedule_notes
from rota.operations.specs import cart_timetable
from rota.ports.carts import NO_TEMPLATES, NewTemplate, Template, TemplateChanges
from rota.ports.records import JobQuery

_DIFFERENCES_SHOWN = 20
_TIMES = ("schedule", "timezone")  # what decides the due times


@dataclass(frozen=True, slots=True)
class PlannedCart:
    """One template of a plan."""

    name: str
    change: Change
    words: str  # its items, its order, what may fail, and when it starts by itself
    next_at: datetime | None = None  # when it becomes a cart by itself; None: on demand only
    differences: tuple[str, ...] = ()  # of a changed one; of very many, the first
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedCarts:
    """The templates that a file defines or drops, as applying it would leave them."""

    planned: tuple[PlannedCart, ...] = ()
    changes: TemplateChanges = NO_TEMPLATES
    versions: tuple[str, ...] = ()  # of all that the plan looked at


async def plan_carts(engine: Engine, file: JobFile, circumstances: Circumstances) -> PlannedCarts:
    """Plan what applying the file does to templates; `Invalid` with all that is wrong with them."""
    if not file.carts and not circumstances.prune:
        return PlannedCarts()
    await _check(engine, file, circumstances)
    stored = await _stored(engine, file, prune=circumstances.prune)
    # Thousands of items take a while to be written down and compared.
    return await asyncio.to_thread(_planned, file, stored, circumstances.now)


def words_of(template: CartTemplate, table: Timetable | None) -> str:
    """Describe what a cart of the template does, and when it starts by itself."""
    when = describe(table) if table else "on demand"
    return f"{template_in_words(template)} · {when}"


async def _check(engine: Engine, file: JobFile, circumstances: Circumstances) -> None:
    calendars = [name for project, name in circumstances.calendars.known if project == file.project]
    ours = {entry.name for entry in file.jobs if entry.spec.project == file.project}
    specs = await _other_jobs(engine, file, ours | set(circumstances.removed_jobs))
    known = {Referred.JOB: ours | specs.keys(), Referred.CALENDAR: calendars}
    problems = [
        problem
        for index, entry in enumerate(file.carts)
        for problem in (*_unread(index, entry), *unknown_references(entry.references, known))
    ]
    report = Report(problems)
    readable = {name: spec for name, spec in specs.items() if spec is not None}
    await asyncio.to_thread(_check_inputs, file.carts, readable, report)
    report.raise_errors("the job file")
    await asyncio.to_thread(_check_calendars, file, circumstances, report)
    report.raise_errors("the job file")


def _unread(index: int, entry: CartEntry) -> Iterator[Problem]:
    if isinstance(entry.template.items, ItemsFile):
        message = f"the server cannot read {entry.template.items.path}"
        hint = "the CLI reads the file and sends its items: rota apply"
        yield Problem(message, f"carts[{index}].items_from", entry.line, hint=hint)


async def _other_jobs(
    engine: Engine, file: JobFile, left_out: Collection[str]
) -> dict[str, JobSpec | None]:
    """Return jobs of the store that carts name; None: one that this server cannot read."""
    used = {each.name for entry in file.carts for each in entry.references}
    names = sorted(used - set(left_out))
    if not names:
        return {}
    query = JobQuery(project=file.project, names=names, limit=len(names))
    specs: dict[str, JobSpec | None] = {}
    for job in await engine.store.jobs(query):
        specs[job.name] = None
        with suppress(Invalid):
            specs[job.name] = read_job(job.document)
    return specs


def _check_inputs(
    entries: Sequence[CartEntry], specs: Mapping[str, JobSpec], report: Report
) -> None:
    """Check inputs of items whose jobs are not in the file; the others were checked with it.

    Problems have paths, not lines: those of a hundred thousand items are not kept.
    """
    for index, entry in enumerate(entries):
        check_inputs_of_items(entry.template, specs, At(report, ("carts", index)))


def _check_calendars(file: JobFile, circumstances: Circumstances, report: Report) -> None:
    """Check that the known calendars leave a cart some time."""
    for index, entry in enumerate(file.carts):
        names = entry.template.rules.calendars
        blackouts = circumstances.calendars.compiled(file.project, names)
        if blackouts and end_of_blackout(blackouts, circumstances.now) is None:
            report.add(Problem(NEVER, f"carts[{index}].calendars", entry.line))


async def _stored(engine: Engine, file: JobFile, *, prune: bool) -> dict[str, Template]:
    """Return the templates that the file names; with `prune` those of its set too."""
    ours = {entry.template.name for entry in file.carts}
    found = await engine.store.templates(file.project, None if prune else sorted(ours))
    return {
        each.name: each for each in found if each.name in ours or each.set_name == file.set_name
    }


def _planned(file: JobFile, stored: Mapping[str, Template], now: datetime) -> PlannedCarts:
    edits = [_Edit.of(entry, file, stored.get(entry.template.name), now) for entry in file.carts]
    kept = {edit.template.name for edit in edits}
    removed = [each for name, each in stored.items() if name not in kept]
    gone = [PlannedCart(each.name, Change.REMOVED, "") for each in removed]
    return PlannedCarts(
        planned=(*(edit.planned(now) for edit in edits), *gone),
        changes=TemplateChanges([edit.new for edit in edits if not edit.is_empty], removed),
        versions=tuple(
            f"cart/{each.project}/{name}:{each.version}" for name, each in stored.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class _Edit:
    """A template of the file, beside the one that it replaces."""

    template: CartTemplate
    new: NewTemplate
    old: Template | None  # None: it would be created
    table: Timetable | None

    @classmethod
    def of(cls, entry: CartEntry, file: JobFile, old: Template | None, now: datetime) -> _Edit:
        template = entry.template
        document = cart_document(template)
        keeps_times = old is not None and all(
            old.document.get(name) == document.get(name) for name in _TIMES
        )
        anchor = old.anchor if old is not None and keeps_times else now
        table = cart_timetable(file.project, template, anchor)
        next_at = table.next_after(now) if table else None
        new = NewTemplate(
            project=file.project,
            name=template.name,
            document=document,
            digest=digest_of(document),
            set_name=file.set_of(old.set_name if old else None),
            next_at=old.next_at if old is not None and keeps_times else next_at,
            anchor=anchor,
            expected_version=old.version if old else 0,
            expected_next_at=old.next_at if old else None,
        )
        return cls(template, new, old, table)

    @property
    def is_empty(self) -> bool:
        old, new = self.old, self.new
        return old is not None and (old.digest, old.set_name) == (new.digest, new.set_name)

    def planned(self, now: datetime) -> PlannedCart:
        change = Change.NEW if self.old is None else Change.CHANGED
        return PlannedCart(
            name=self.template.name,
            change=Change.UNCHANGED if self.is_empty else change,
            words=words_of(self.template, self.table),
            next_at=self._next_on_clocks(),
            differences=tuple(self._differences()),
            notes=() if self.is_empty else tuple(self._notes(now)),
        )

    def _next_on_clocks(self) -> datetime | None:
        schedule, next_at = self.template.schedule, self.new.next_at
        if schedule is None or next_at is None:
            return None
        return load_zone(schedule.timezone).local(next_at)

    def _differences(self) -> list[str]:
        if self.old is None or self.is_empty:
            return []
        lines = difference(self.old.set_name, self.new.set_name, "set")
        lines += differences(self.old.document, self.new.document)
        more = len(lines) - _DIFFERENCES_SHOWN
        return lines if more <= 0 else [*lines[:_DIFFERENCES_SHOWN], f"and {more:,} more"]

    def _notes(self, now: datetime) -> Iterator[str]:
        schedule = self.template.schedule
        if self.table is not None and schedule is not None:
            yield from schedule_notes(schedule, self.table, self.new.next_at, now)
