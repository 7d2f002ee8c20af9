"""Policy of a project: what its jobs may ask for, whatever their files say.

Installation admins set it. It is checked once all defaults are merged: when jobs are applied, when
somebody asks for a run with a priority of its own, and at the gate (`domain.gates`), where a job
that asks for too much since the policy was tightened starts nothing until one of the two changes.

Pools belong to it as well: one that is given to some projects is closed to the jobs of all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from rota.domain.job import RunRules
from rota.domain.quantities import format_duration, format_size
from rota.domain.resources import UNIT, format_amount


@dataclass(frozen=True, slots=True)
class Policy:
    """The most that jobs of a project may ask for; None: any."""

    pools: tuple[str, ...] | None = None
    timeout: timedelta | None = None  # a job without a timeout asks for more than any
    attempts: int | None = None  # of a run, the first included
    priority: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths; others have no bound
    log_limit: int | None = None  # bytes
    max_concurrency: int | None = None  # a job without one asks for more than any


@dataclass(frozen=True, slots=True)
class Bounds:
    """All that bounds the jobs of a project."""

    policy: Policy = Policy()
    barred: tuple[str, ...] = ()  # pools that were given to other projects

    @property
    def are_open(self) -> bool:
        """Return whether nothing is bounded."""
        return self == _NO_BOUNDS

    def allow_pool(self, pool: str) -> bool:
        """Return whether jobs of the project may name this pool."""
        allowed = self.policy.pools
        return pool not in self.barred and (allowed is None or pool in allowed)


_NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Excess:
    """Something that a job asks for and may not have."""

    path: tuple[str, ...]  # of the field in the job file: ("resources", "cpu")
    message: str
    hint: str = ""


def excesses(bounds: Bounds, asked: RunRules) -> list[Excess]:
    """List what a job asks for beyond its bounds, in the order of the job file's fields."""
    return list(_excesses(bounds, asked))


def is_within(bounds: Bounds, asked: RunRules) -> bool:
    return next(_excesses(bounds, asked), None) is None


def excess_of_priority(policy: Policy, priority: int | None) -> Excess | None:
    """Return why a run may not have this priority; `None` is that of its job."""
    most = policy.priority
    if priority is None or most is None or priority <= most:
        return None
    return Excess(("priority",), f"priority {priority} is above {most}, the most that is allowed")


def barred_pools(given: Mapping[str, Collection[str]], project: str) -> tuple[str, ...]:
    """List the pools that a project may not use; `given` has the projects of pools that are."""
    return tuple(sorted(pool for pool, projects in given.items() if project not in projects))


def _excesses(bounds: Bounds, asked: RunRules) -> Iterator[Excess]:
    policy = bounds.policy
    if policy.max_concurrency is not None:
        yield from _of_concurrency(policy.max_concurrency, asked.max_concurrency)
    if excess := excess_of_priority(policy, asked.priority):
        yield excess
    yield from _of_pool(bounds, asked.pool)
    yield from _of_resources(policy.resources, asked)
    if policy.timeout is not None:
        yield from _of_timeout(policy.timeout, asked.timeout)
    if policy.attempts is not None and asked.retry.attempts > policy.attempts:
        yield Excess(
            ("retry", "attempts"),
            f"{asked.retry.attempts:,} attempts are more than {policy.attempts:,}, the most that"
            " are allowed",
        )
    # Rules that an earlier release wrote do not tell it: the next apply finds out.
    if policy.log_limit is not None and (asked.log_limit or 0) > policy.log_limit:
        kept, most = (format_size(size) for size in (asked.log_limit or 0, policy.log_limit))
        hint = f"write log_limit: {most}"
        message = f"log_limit {kept} is above {most}, the most that is allowed"
        yield Excess(("log_limit",), message, hint)


def _of_concurrency(most: int, asked: int | None) -> Iterator[Excess]:
    hint = f"write max_concurrency: {most}"
    if asked is None:
        yield Excess(
            ("max_concurrency",), f"max_concurrency must be set, to at most {most:,}", hint
        )
    elif asked > most:
        message = f"max_concurrency {asked:,} is above {most:,}, the most that is allowed"
        yield Excess(("max_concurrency",), message)


def _of_timeout(most: timedelta, asked: timedelta | None) -> Iterator[Excess]:
    shown = format_duration(most)
    if asked is None:
        message = f"timeout must be set, to at most {shown}"
        yield Excess(("timeout",), message, f"write timeout: {shown}")
    elif asked > most:
        message = f"timeout {format_duration(asked)} is above {shown}, the most that is allowed"
        yield Excess(("timeout",), message)


def _of_pool(bounds: Bounds, pool: str) -> Iterator[Excess]:
    allowed = bounds.policy.pools
    if pool in bounds.barred:
        yield Excess(("pool",), f"pool {pool} is not for this project")
    elif allowed is not None and pool not in allowed:
        hint = f"allowed: {', '.join(allowed)}" if allowed else "no pool is allowed"
        yield Excess(("pool",), f"pool {pool} is not allowed", hint)


def _of_resources(most: Mapping[str, int], asked: RunRules) -> Iterator[Excess]:
    shared = {name: amount * UNIT for name, amount in asked.uses.items()}
    for name, amount in sorted({**asked.resources, **shared}.items()):
        bound = most.get(name)
        if bound is not None and amount > bound:
            taken, allowed = (format_amount(name, each) for each in (amount, bound))
            message = f"{taken} {name} are more than {allowed}, the most that is allowed"
            yield Excess(("resources", name), message)
