"""Whether the jobs of a file can have what they use: resources, limits, and jobs to follow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.domain.errors import Problem
from rota.domain.job import Job
from rota.domain.jobfile import JobEntry, JobFile
from rota.domain.jobfile.fitting import (
    refusals_of,
    too_large,
    without_labels,
    without_worker,
)
from rota.domain.jobfile.report import Report
from rota.domain.jobfile.uses import Known, UsedResource, Written, cycle_problem, problems_of
from rota.domain.limits import Declaration
from rota.domain.resources import Vector
from rota.operations.backends import Backends
from rota.ports.records import JobQuery, Session

_MOST_MEANT = 1_000  # names that a wrong one is compared with
_Jobs = Mapping[str, JobEntry]  # of the file, by name
_Followed = Mapping[str, Sequence[str]]  # what each of some jobs of the store follows


@dataclass(frozen=True, slots=True)
class _Workers:
    """What runs may ask of workers, as far as any are known."""

    sessions: Sequence[Session]
    largest: Mapping[str, Vector]  # by pool

    @property
    def offered(self) -> frozenset[str]:
        return frozenset(name for session in self.sessions for name in session.resources)

    def of(self, pool: str) -> list[Session]:
        return [session for session in self.sessions if session.pool == pool]


async def check_uses(
    backends: Backends,
    file: JobFile,
    declared: Mapping[str, Sequence[Declaration]],
    removed: Collection[str],
) -> tuple[Problem, ...]:
    """What a person should know; `Invalid` if a job cannot have what it uses.

    `declared` is what there will be, by project, and `removed` are jobs of the file's project
    that go with it.
    """
    workers = _Workers(await _sessions(backends, file), backends.largest)
    report = Report()
    for project, declarations in declared.items():
        jobs = {entry.name: entry for entry in file.jobs if entry.spec.project == project}
        gone = removed if project == file.project else ()
        others = await _followed(backends, project, jobs, gone)
        known = replace(
            Known.of(declarations, is_all=True),
            offered=workers.offered,
            jobs=await _known_jobs(backends, project, jobs, others) - set(gone),
        )
        for problem in _problems(jobs, known, others, workers):
            report.add(problem)
    for warning in _unserved(file, await _pools(backends)):
        report.add(warning)
    report.raise_errors("the job file")
    return report.warnings()


async def _sessions(backends: Backends, file: JobFile) -> list[Session]:
    """The workers that are known, if any job asks something of them."""
    is_asked = any(entry.needs or _takes_resources(entry) for entry in file.jobs)
    return await backends.store.sessions(alive_only=False) if is_asked else []


def _takes_resources(entry: JobEntry) -> bool:
    return any(isinstance(use, UsedResource) for use in entry.uses)


async def _pools(backends: Backends) -> set[str]:
    """Those that have a worker now."""
    return {session.pool for session in await backends.store.sessions(alive_only=True)}


def _unserved(file: JobFile, pools: Collection[str]) -> Iterator[Problem]:
    """Pools without a worker, each told where the first of its jobs names it."""
    first: dict[str, Written] = {}
    for entry in file.jobs:
        if entry.pool is not None:
            first.setdefault(entry.pool.name, entry.pool)
    for pool in first.values():
        if warning := without_worker(pool, pools):
            yield warning


async def _followed(
    backends: Backends, project: str, jobs: _Jobs, removed: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Jobs of the store that those of the file follow, directly or not; and what each follows."""
    found: dict[str, tuple[str, ...]] = {}
    asked = {*jobs, *removed}
    ahead = {name for entry in jobs.values() for name in entry.spec.after.jobs} - asked
    while ahead:
        asked |= ahead
        query = JobQuery(project=project, names=sorted(ahead), limit=len(ahead))
        step = {job.name: _upstreams(job) for job in await backends.store.jobs(query)}
        found |= step
        ahead = {name for names in step.values() for name in names} - asked
    return found


async def _known_jobs(backends: Backends, project: str, jobs: _Jobs, others: _Followed) -> set[str]:
    """Jobs that may be followed: where one is missing, also those that may be meant."""
    known = {*jobs, *others}
    if {name for entry in jobs.values() for name in entry.spec.after.jobs} <= known:
        return known
    query = JobQuery(project=project, limit=_MOST_MEANT)
    return known | {job.name for job in await backends.store.jobs(query)}


def _upstreams(job: Job) -> tuple[str, ...]:
    return tuple(job.document.get("after", {}).get("jobs", ()))


def _problems(jobs: _Jobs, known: Known, others: _Followed, workers: _Workers) -> Iterator[Problem]:
    for entry in jobs.values():
        pool = entry.spec.pool
        problems = [
            *problems_of(entry.uses, known),
            *refusals_of(entry.uses, pool, workers.largest.get(pool, {})),
        ]
        yield from problems or _warnings(entry, known, workers.of(pool))
    if cycle := cycle_problem({name: entry.uses for name, entry in jobs.items()}, others):
        yield cycle


def _warnings(entry: JobEntry, known: Known, crew: Sequence[Session]) -> Iterator[Problem]:
    """What none of these workers of its pool could do for a job."""
    pool, needs = entry.spec.pool, entry.needs
    offers = [session.resources for session in crew]
    if warning := too_large(entry.uses, known, pool, offers):
        yield warning
    labels = [session.labels for session in crew]
    if needs and (warning := without_labels(needs, entry.spec.needs, pool, labels)):
        yield warning
