"""The projects and shares that jobs of a file name: an admin decides which there are.

Each has a part of busy workers for itself, and a project quotas of its own: nobody gets more by
making some up.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import JobFile
from rota.domain.jobfile.report import Report
from rota.domain.jobfile.uses import Written
from rota.domain.jobfile.wording import did_you_mean
from rota.domain.schedule.quoting import quoted
from rota.domain.spec import DEFAULT_PROJECT, JobSpec
from rota.operations.backends import Backends
from rota.operations.differences import Change
from rota.operations.planned_jobs import PlannedJob
from rota.ports.records import JobQuery


@dataclass(frozen=True, slots=True)
class _Known:
    shares: frozenset[str]  # that have a weight
    projects: frozenset[str]  # of the names in question
    is_admin: bool  # who names a share that is not known makes it


async def plan_projects(backends: Backends, file: JobFile, *, is_admin: bool) -> tuple[str, ...]:
    """The projects that are to be made; `Invalid` if that takes an admin and this is none.

    One that an admin has made, or given a weight, stays when its last job goes.
    """
    named = {entry.spec.project for entry in file.jobs} - {DEFAULT_PROJECT}
    if not named:
        return ()
    shares = {each.share for each in await backends.store.share_weights()}
    new = sorted(named - shares - await _with_jobs(backends, named - shares))
    if new and not is_admin:
        raise Invalid(
            f"there is no project {quoted(new[0])}",
            code="project_not_found",
            hint=f"an admin makes it: rota share set {shlex.quote(new[0])} --weight 1",
        )
    return tuple(new)


async def plan_shares(
    backends: Backends, file: JobFile, jobs: Sequence[PlannedJob], *, is_admin: bool
) -> tuple[str, ...]:
    """The shares that are to be made; `Invalid` if a new or changed job may not name its own."""
    named = [
        entry.share
        for entry, job in zip(file.jobs, jobs, strict=True)
        if entry.share is not None and job.change.change is not Change.UNCHANGED
    ]
    if not named:
        return ()
    names = frozenset(share.name for share in named)
    shares = frozenset(each.share for each in await backends.store.share_weights())
    known = _Known(shares, await _projects(backends, file, names), is_admin)
    report = Report()
    for share in named:
        if problem := _problem_of(share, known):
            report.add(problem)
    report.raise_errors("the job file")
    return tuple(sorted(names - shares))


def with_notes(file: JobFile, jobs: Sequence[PlannedJob], new: Collection[str]) -> list[PlannedJob]:
    """The same, those that name a new project or share with a note about it."""
    return [
        _noted(job, _notes(entry.spec, new)) for entry, job in zip(file.jobs, jobs, strict=True)
    ]


def _notes(spec: JobSpec, new: Collection[str]) -> tuple[str, ...]:
    named = (("project", spec.project), ("share", spec.share))
    return tuple(f"{word} {name} is new and weighs 1" for word, name in named if name in new)


def _noted(job: PlannedJob, notes: tuple[str, ...]) -> PlannedJob:
    return replace(job, change=replace(job.change, notes=(*job.change.notes, *notes)))


async def _projects(backends: Backends, file: JobFile, names: frozenset[str]) -> frozenset[str]:
    """Which of these names are those of projects."""
    ours = {file.project, *(entry.spec.project for entry in file.jobs)}
    return frozenset(ours | await _with_jobs(backends, names - ours))


async def _with_jobs(backends: Backends, projects: Collection[str]) -> set[str]:
    store = backends.store
    return {name for name in projects if await store.jobs(JobQuery(project=name, limit=1))}


def _problem_of(share: Written, known: _Known) -> Problem | None:
    name = quoted(share.name)
    if "/" in share.name:
        return share.problem(f"share {name} reads like a user of a project", "use no slash")
    if share.name in known.projects:
        return share.problem(f"share {name} is the name of a project", "give it another name")
    if known.is_admin or share.name in known.shares:
        return None
    hint = did_you_mean(share.name, [each for each in known.shares if "/" not in each])
    command = f"an admin makes it: rota share set {shlex.quote(share.name)} --weight 1"
    return share.problem(f"there is no share {name}", hint or command)
