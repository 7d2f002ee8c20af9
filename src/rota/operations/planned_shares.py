"""The shares that jobs of a file name: an admin decides which there are."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rota.domain.errors import Problem
from rota.domain.jobfile import JobFile
from rota.domain.jobfile.report import Report
from rota.domain.jobfile.uses import Written
from rota.domain.jobfile.wording import did_you_mean
from rota.domain.schedule.quoting import quoted
from rota.operations.backends import Backends
from rota.operations.differences import Change
from rota.operations.planned_jobs import PlannedJob
from rota.ports.records import JobQuery


@dataclass(frozen=True, slots=True)
class _Known:
    shares: frozenset[str]  # that have a weight
    projects: frozenset[str]  # of the names in question
    is_admin: bool  # who names a share that is not known makes it


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


def with_new_shares(
    file: JobFile, jobs: Sequence[PlannedJob], new: Collection[str]
) -> list[PlannedJob]:
    """The same, those that name a new share with a note about it."""
    return [
        _noted(job, entry.spec.share) if entry.spec.share in new else job
        for entry, job in zip(file.jobs, jobs, strict=True)
    ]


def _noted(job: PlannedJob, share: str) -> PlannedJob:
    note = f"share {share} is new and weighs 1"
    return replace(job, change=replace(job.change, notes=(*job.change.notes, note)))


async def _projects(backends: Backends, file: JobFile, names: frozenset[str]) -> frozenset[str]:
    """Which of these names are those of projects."""
    ours = {file.project, *(entry.spec.project for entry in file.jobs)}
    others = {
        name for name in names - ours if await backends.store.jobs(JobQuery(project=name, limit=1))
    }
    return frozenset(ours | others)


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
