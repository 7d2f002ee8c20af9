"""Jobs, limits and resources of every universe: one of each kind that can go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from random import Random
from typing import Any

from rota.domain.firing import FiringRules
from rota.domain.ids import JobId, shard_of
from rota.domain.job import RunRules, rules_of
from rota.domain.jobfile import read_job
from rota.domain.keys import (
    ONE_AT_A_TIME,
    RUNNING_QUOTA,
    Demands,
    Key,
    KeyKind,
    KeyRule,
    Limit,
    Quota,
    Resource,
    key_of,
)
from rota.domain.resources import UNIT, Vector
from rota.domain.retry import goes_alone
from rota.domain.shape import alone, demand_of, shape_of
from rota.domain.shards import LEADING_SHARD
from rota.domain.spec import JobSpec
from rota.operations.firing import MISFIRE_GRACE
from rota.operations.specs import timetable
from testkit.clock import START

PROJECT = "default"
FIRING_FOR = timedelta(seconds=22)  # after that no schedule has a due time
LICENCE = Resource(PROJECT, "licence", total=3)
API = Limit(PROJECT, "api", tokens=2, per=timedelta(seconds=3), burst=3)
QUOTA = Quota(PROJECT, running=4)  # in some universes
HOSTS = ("alpha", "beta")
CART_JOBS = ("plain", "large", "rollout", "payout", "fragile", "fragile", "fragile")  # of items

_RETRY = {"attempts": 3, "delay": "2s"}
_DOCUMENTS: tuple[dict[str, Any], ...] = (
    {"name": "plain", "retry": _RETRY, "max_losses": 1},
    {"name": "narrow", "max_concurrency": 2, "retry": _RETRY, "max_losses": 0},
    {"name": "payout", "delivery": "at_most_once"},
    {"name": "fragile"},
    {"name": "large", "retry": _RETRY},
    {"name": "licensed", "retry": _RETRY},
    {"name": "calls", "retry": _RETRY},
    {"name": "rollout", "retry": _RETRY},
    {"name": "follower", "after": ["plain", "payout"], "retry": _RETRY},
    {"name": "newest", "schedule": "every 7s", "overlap": "queue_one", "retry": _RETRY},
    {"name": "every", "schedule": "every 6s", "overlap": "queue_all", "misfire": {"policy": "all"}},
    {"name": "latest", "schedule": "every 9s", "overlap": "cancel_previous"},
    {"name": "rare", "schedule": "every 5s", "overlap": "skip", "misfire": {"policy": "none"}},
)
_DEMANDS: Mapping[str, Mapping[str, Any]] = {
    "large": {"resources": {"cpu": 3 * UNIT}},
    "narrow": {"resources": {"cpu": UNIT // 2}},
    "licensed": {"resources": {"licence": 2 * UNIT, "cpu": UNIT}},
    "calls": {"rate_limits": {"api": 1}},
    "rollout": {"exclusive_by": ("host",)},
}
TIMEOUT = timedelta(seconds=12)  # of every attempt
_RUNNING = key_of(KeyKind.QUOTA, PROJECT, RUNNING_QUOTA)
KEY_RULES: Mapping[Key, KeyRule] = {
    _RUNNING: QUOTA.rules[RUNNING_QUOTA],
    key_of(KeyKind.RESOURCE, PROJECT, LICENCE.name): LICENCE.rule,
    key_of(KeyKind.RATE, PROJECT, API.name): API.rule,
}


@dataclass(frozen=True, slots=True)
class KnownJob:
    """Job, read and compiled once for all universes."""

    id: JobId
    document: Mapping[str, Any]
    spec: JobSpec
    rules: RunRules
    shape: str
    firing: FiringRules | None  # None: it has no due times

    @property
    def name(self) -> str:
        return self.spec.name

    def takes(self, capacity: Vector, losses: int) -> Vector:
        """Return what a run with so many lost workers takes of a worker's capacity."""
        is_alone = goes_alone(losses, self.rules.max_losses)
        return demand_of(alone(self.shape) if is_alone else self.shape).on(capacity)

    def keys(self, inputs: Mapping[str, Any] | None, *, has_quota: bool) -> Demands:
        """Return the shared keys that a run with these inputs takes; the quota is for all runs."""
        taken = {
            key_of(KeyKind.EXCLUSIVE, PROJECT, f"{name}={(inputs or {}).get(name)}"): 1
            for name in self.rules.exclusive_by
        }
        for kind, amounts in (
            (KeyKind.RATE, self.rules.rate_limits),
            (KeyKind.RESOURCE, self.rules.uses),
        ):
            taken |= {key_of(kind, PROJECT, name): amount for name, amount in amounts.items()}
        return taken | {_RUNNING: 1} if has_quota else taken

    def wish(self, random: Random) -> Mapping[str, Any] | None:
        """Return inputs for one of its runs."""
        return {"host": random.choice(HOSTS)} if self.rules.exclusive_by else None


def rule_of(key: Key) -> KeyRule:
    return KEY_RULES.get(key, ONE_AT_A_TIME)


@lru_cache(maxsize=1)
def catalogue() -> Mapping[JobId, KnownJob]:
    jobs = [_known(document) for document in _DOCUMENTS]
    return {job.id: job for job in jobs}


@lru_cache(maxsize=1)
def shards() -> frozenset[int]:
    """Return the shards of a universe: that of each job, and the leading one."""
    return frozenset({LEADING_SHARD, *map(shard_of, catalogue())})


def followers(upstream: str) -> list[KnownJob]:
    """List the jobs that get a run for each completed run of this one."""
    return [job for job in catalogue().values() if upstream in job.rules.after]


def _known(document: dict[str, Any]) -> KnownJob:
    document = {**document, "timeout": "12s", "steps": [{"run": "true"}]}
    if "schedule" in document:
        document["ends"] = (START + FIRING_FOR).isoformat()
    name = document["name"]
    spec = replace(read_job(document), **_DEMANDS.get(name, {}))
    rules = rules_of(spec, shared={LICENCE.name})
    return KnownJob(
        id=JobId(f"j_{name}"),
        document=document,
        spec=spec,
        rules=rules,
        shape=shape_of(rules),
        firing=_firing(spec),
    )


def _firing(spec: JobSpec) -> FiringRules | None:
    table = timetable(spec, START)
    if table is None or spec.schedule is None:
        return None
    return FiringRules(table, spec.schedule.misfire, MISFIRE_GRACE)
