"""Types of jobs that plug-ins bring: which workers have offered, and what jobs of them may be.

A store knows the types that were ever offered. A job of another one is refused: it is a typing
error, or its plug-in was never set up. Once offered, a type stays known, and runs wait for a worker
that has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from rota.domain.errors import NotFound, Problem, did_you_mean, quoted
from rota.domain.jobfile import JobEntry, JobFile
from rota.domain.jobfile.text import Report
from rota.domain.json_schema import Misfit, misfits
from rota.domain.spec import JobType, is_plugin_type
from rota.domain.walls import OfferKind
from rota.operations.engine import Engine
from rota.operations.tenants import Sight, open_sessions
from rota.ports.records import KnownType, Session

log = structlog.get_logger()

_HOW_TO_OFFER = (
    "a worker offers it whose setting executors names its plug-in, or whose app has a class of it "
    "(@app.executor); rota job types shows those that are known"
)


async def check_types(
    engine: Engine, file: JobFile, *, may_be_new: bool = False
) -> tuple[Problem, ...]:
    """Return warnings; `Invalid` if jobs are of types that nobody offered, or not as these want.

    `may_be_new`: a worker that is about to start may offer them.
    """
    entries = [entry for entry in file.jobs if is_plugin_type(entry.spec.type)]
    if not entries:
        return ()
    known = {each.name: each for each in await engine.store.job_types()}
    is_unknown = any(entry.spec.type not in known for entry in entries)
    named = await _named_to(engine, file) if is_unknown else {}
    # Schemas may be long, and leases are renewed on this loop.
    problems = await asyncio.to_thread(lambda: list(_problems(entries, known, named)))
    report = Report()
    for kind, problem in problems:
        is_new = may_be_new and kind not in known
        report.add(replace(problem, warning=True) if is_new else problem)
    report.raise_errors("the job file")
    return report.warnings()


_Named = Mapping[str, Mapping[str, str]]  # types; workers that lack them now, with their reasons


async def _named_to(engine: Engine, file: JobFile) -> _Named:
    """Return the types that may be told to the projects of a file: of workers open to them."""
    crew = await open_sessions(engine, file.projects, alive_only=False)
    alive = [each for each in crew if each.alive]
    return {name: _offers_of(name, alive)[1] for name in _names_of(crew)}


def _names_of(crew: Iterable[Session]) -> set[str]:
    return {offer.name for each in crew for offer in each.offers if offer.kind == OfferKind.TYPE}


def _problems(
    entries: Sequence[JobEntry], known: Mapping[str, KnownType], named: _Named
) -> Iterator[tuple[str, Problem]]:
    for entry in entries:
        kind = entry.spec.type
        if kind not in known:
            yield kind, _never_offered(entry, named)
            continue
        for misfit in misfits(entry.spec.parameters, known[kind].schema):
            yield kind, _misfit(entry, misfit)


def _never_offered(entry: JobEntry, named: _Named) -> Problem:
    kind = entry.spec.type
    message = f"{entry.name}: no worker has ever offered jobs of type {quoted(kind)}"
    if lacking := named.get(kind):
        worker, reason = next(iter(lacking.items()))
        hint = f"worker {worker} was to have it: {reason}"
        return entry.problem_at(("type",), message, hint)
    near = did_you_mean(kind, [*map(str, JobType), *(named.keys() - {kind})])
    return entry.problem_at(("type",), message, f"{near} {_HOW_TO_OFFER}".strip())


def _misfit(entry: JobEntry, misfit: Misfit) -> Problem:
    path = ("parameters", *map(str, misfit.path))
    hint = misfit.hint or f"rota job types {entry.spec.type} prints what it takes"
    return entry.problem_at(path, f"{entry.name}: {misfit.message}", hint)


@dataclass(frozen=True, slots=True)
class OfferedType:
    """Type of jobs, and who has it now, or was to have it."""

    name: str
    is_built_in: bool
    workers: tuple[str, ...]  # that offer it now, as far as the caller sees them
    lacking: Mapping[str, str]  # that name it but do not have it, with their reasons
    api_version: int = 0
    schema: Mapping[str, Any] | None = None  # None: a type that Rota brings
    offered_at: datetime | None = None  # None: Rota brings it, or no worker ever had it


async def job_types(engine: Engine, sight: Sight) -> list[OfferedType]:
    """List the types that Rota brings, then those that workers have ever offered or name, by name.

    Without a role in the installation, those of workers that the caller sees.
    """
    sessions = await engine.store.sessions(alive_only=False)
    seen = [each for each in sessions if sight.sees_pool(each.pool)]
    crew = [each for each in seen if each.alive]
    named = _names_of(seen)
    known = [
        each
        for each in await engine.store.job_types()
        if sight.projects is None or each.name in named
    ]
    own = [OfferedType(str(kind), True, *_offers_of(str(kind), crew)) for kind in JobType]
    others = [
        OfferedType(
            each.name,
            False,
            *_offers_of(each.name, crew),
            each.api_version,
            each.schema,
            each.offered_at,
        )
        for each in known
    ]
    # What a worker was to have and no worker ever had, such as a plug-in that cannot be loaded.
    new = {name for name in _names_of(crew) if is_plugin_type(name)} - {each.name for each in known}
    others += [OfferedType(name, False, *_offers_of(name, crew)) for name in new]
    return own + sorted(others, key=lambda each: each.name)


async def job_type(engine: Engine, sight: Sight, name: str) -> OfferedType:
    """Return one type. `NotFound` names the nearest one."""
    found = await job_types(engine, sight)
    for each in found:
        if each.name == name:
            return each
    hint = did_you_mean(name, [each.name for each in found])
    raise NotFound(
        "no worker has ever offered jobs of such a type",
        code="job_type_not_found",
        hint=hint or "rota job types shows those that are known",
    )


def _offers_of(kind: str, crew: Sequence[Session]) -> tuple[tuple[str, ...], dict[str, str]]:
    having: set[str] = set()
    lacking: dict[str, str] = {}
    for session in crew:
        for offer in session.offers:
            if (offer.kind, offer.name) != (OfferKind.TYPE, kind):
                continue
            if offer.reason:
                lacking[session.worker] = offer.reason
            else:
                having.add(session.worker)
    return tuple(sorted(having)), {name: lacking[name] for name in sorted(lacking)}
