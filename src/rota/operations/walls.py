"""Walls that jobs ask for and workers do not have: which, and why, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from rota.domain.errors import Problem
from rota.domain.job import rules_of
from rota.domain.jobfile import JobEntry
from rota.domain.quantities import format_duration
from rota.domain.shape import demand_of, unmet, worker_of
from rota.domain.spec import JobSpec, is_plugin_type
from rota.domain.walls import (
    OfferKind,
    demanded,
    field_of,
    missing,
    offered_lease,
    walls_of,
    why_not_mounted,
    words_of,
)
from rota.ports.records import Session

# What a worker's admin decides by a name: none is tried, so none has a reason of its own.
_SETTINGS = {
    OfferKind.MOUNT: "container_mounts",
    OfferKind.REGISTRY: "container_registries",
    OfferKind.RUN_AS: "run_as",
    OfferKind.SECRET: "http_secrets",
}
_SHOWN = 3  # of sorts of workers, and of workers of one sort


def demands_of(spec: JobSpec) -> tuple[str, ...]:
    """Return what runs of a job ask of the offers of their worker, its own types apart."""
    kind = spec.type if is_plugin_type(spec.type) else ""
    lease = (f"{OfferKind.LEASE}/{offered_lease(spec.lease)}",) if spec.lease else ()
    return (*demanded(walls_of(spec), kind, rules_of(spec).secrets), *lease)


def without_walls(entry: JobEntry, crew: Sequence[Session]) -> Problem | None:
    """Return a warning if no known worker of the pool offers all that a job asks for."""
    demands = demands_of(entry.spec)
    lacks = [missing(demands, session.offered) for session in crew]
    if not lacks or not all(lacks):
        return None
    least = min(lacks, key=len)
    asked = ", ".join(map(words_of, least))
    message = f"no worker of pool {entry.spec.pool} offers {asked}: runs will wait for one"
    return replace(entry.problem_at(field_of(least[0]), message), warning=True)


def candidates(present: Sequence[Session], pool: str, shape: str) -> list[Session]:
    """Return the workers of a pool; only the one that runs of this shape are for, if it is one."""
    worker = worker_of(shape)
    return [each for each in present if each.pool == pool and worker in ("", each.worker)]


def lacks_of(shape: str, crew: Sequence[Session]) -> list[str]:
    """Tell of workers none of which fits what each misses; those that are alike together.

    Of a wall that a worker does not have it tells the worker's own reason.
    """
    alike: dict[str, list[str]] = {}
    for session in crew:
        alike.setdefault("; ".join(_lacks(shape, session)), []).append(session.worker)
    sorts = sorted(alike.items(), key=lambda each: (-len(each[1]), each[1]))
    told = [f"{_named(workers)} {lack}" for lack, workers in sorts[:_SHOWN]]
    others = sum(len(workers) for _, workers in sorts[_SHOWN:])
    return [*told, f"{others} more do not fit either"] if others else told


def _lacks(shape: str, session: Session) -> Iterator[str]:
    demands = demand_of(shape).offers
    for demand in missing(demands, session.offered):
        reason = _reason(demand, session)
        yield f"has no {words_of(demand)}{f': {reason}' if reason else ''}"
    # As if it had all walls: what else it lacks.
    others = unmet(shape, session.all_labels, session.functions, session.capacity, demands)
    if others:
        yield f"misses {', '.join(others)}"


def _reason(demand: str, session: Session) -> str:
    kind, _, name = demand.partition("/")
    for offer in session.offers:
        if (offer.kind, offer.name) == (kind, name):
            return offer.reason
    if kind == OfferKind.MOUNT and (reason := why_not_mounted(demand, session.offered)):
        return reason
    if kind == OfferKind.LEASE:
        return f"start it with --lease {format_duration(timedelta(seconds=float(name)))}"
    if kind == OfferKind.TYPE and is_plugin_type(name):
        return "its setting executors does not name it, nor has its app such a class"
    if kind in _SETTINGS:
        return f"its setting {_SETTINGS[OfferKind(kind)]} names none such"
    known = {offer.kind for offer in session.offers}
    return "" if kind in known else f"release {session.version or 'unknown'} has none"


def _named(workers: Sequence[str]) -> str:
    names = sorted(set(workers))
    if len(names) == 1:
        return f"worker {names[0]}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"each of {', '.join(names[:_SHOWN])}{more}"
