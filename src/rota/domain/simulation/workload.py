"""A workload to simulate: workers, jobs with how often and how long they run, and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rota.domain.job import RunRules
from rota.domain.key_demands import Asker, DeclarationId, demands_of, rule_of
from rota.domain.limits import KINDS, Declaration
from rota.domain.order import share_key
from rota.domain.resources import Vector
from rota.domain.shape import shape_of
from rota.domain.shared_keys import Demands, Key, KeyRule
from rota.domain.simulation.lengths import Lengths
from rota.domain.simulation.model import SimWorker
from rota.domain.spec import Schedule


@dataclass(frozen=True, slots=True)
class Workers:
    """A number of equal workers."""

    name: str
    count: int
    pool: str
    capacity: Vector  # thousandths, slots included
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Runs that come at random, independent of each other."""

    mean: float  # how many
    per: float  # seconds


@dataclass(frozen=True, slots=True)
class JobMix:
    """A number of equal jobs, or a stream of runs of one."""

    rules: RunRules
    lengths: Lengths
    arrivals: Schedule | Poisson
    schedules: int = 1  # jobs with this schedule, each with its own delay below the spread
    user: str = ""
    start_within: float | None = None  # seconds: the objective; None: there is none
    output_bytes: int = 0  # of a run

    @property
    def name(self) -> str:
        return self.rules.name

    @property
    def share(self) -> str:
        return share_key(self.rules.project, self.user, self.rules.share)

    @property
    def shape(self) -> str:
        return shape_of(self.rules)

    def demands(self, declared: Sequence[Declaration]) -> Demands:
        return demands_of(Asker(self.rules, self.user, {}), declared)


@dataclass(frozen=True)
class Workload:
    workers: Sequence[Workers]
    jobs: Sequence[JobMix]
    declared: Sequence[Declaration] = ()
    weights: Mapping[str, float] = field(default_factory=dict)  # by share

    @cached_property
    def demands(self) -> Mapping[str, Demands]:
        """The keys that a run of each job takes."""
        return {job.name: job.demands(self.declared) for job in self.jobs}

    @property
    def rules(self) -> Mapping[Key, KeyRule]:
        """Of the keys that its jobs take."""
        known: dict[DeclarationId, Declaration] = {
            (KINDS[type(each)], each.project, each.name): each for each in self.declared
        }
        keys = {key for demands in self.demands.values() for key in demands}
        found = {key: rule_of(key, known) for key in sorted(keys)}
        return {key: rule for key, rule in found.items() if rule is not None}

    def staff(self) -> list[SimWorker]:
        """All workers one by one."""
        return [
            SimWorker(f"{each.name}-{number}", each.pool, each.capacity, each.labels)
            for each in self.workers
            for number in range(1, each.count + 1)
        ]
