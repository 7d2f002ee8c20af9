"""What is written down while a world runs, for the report at its end."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from rota.domain.resources import Vector, dominant_share, total
from rota.domain.shape import demand_of
from rota.domain.shared_keys import Key
from rota.domain.simulation.crowd import Crowd
from rota.domain.simulation.model import Observer, SimRun, SimWorker

MINUTE = 60.0
Measure: TypeAlias = tuple[str, str]  # pool, resource


class Kind(NamedTuple):
    """Runs that are told apart in the report."""

    job: str
    priority: int
    share: str


class Measures(Observer):
    """Sums and samples of what happens until the end of a simulation."""

    def __init__(self, workers: Iterable[SimWorker], until: float) -> None:
        members: defaultdict[str, list[Vector]] = defaultdict(list)
        for worker in workers:
            members[worker.pool].append(worker.capacity)
        self.totals = {pool: total(each) for pool, each in members.items()}
        self.until = until
        self.waits: defaultdict[Kind, array[float]] = defaultdict(lambda: array("d"))
        self.pool_seconds: defaultdict[str, float] = defaultdict(
            float
        )  # by share, resources × time
        self.used: defaultdict[Measure, float] = defaultdict(float)  # thousandths × seconds
        self.peaks: Counter[Measure] = Counter()
        self.starts: Counter[int] = Counter()  # by minute
        self.ended = 0
        self.standing: dict[str, tuple[SimRun, Crowd]] = {}  # runs that wait, and with whom
        self.crowds: dict[str, Crowd] = {}
        self._held: Counter[Measure] = Counter()

    def on_queued(self, run: SimRun, at: float) -> None:
        self._stand(run, f"pool {run.pool}", at)

    def on_blocked(self, run: SimRun, key: Key, at: float, eligible_at: float | None) -> None:
        self._stand(run, key, at)

    def on_start(self, run: SimRun, worker: str, at: float) -> None:
        self.standing.pop(run.id)[1].go(at)
        self.waits[Kind(run.job, run.priority, run.share)].append(at - run.arrives_at)
        self.starts[int(at / MINUTE)] += 1
        self.hold(run, min(at + run.seconds, self.until) - at)

    def on_end(self, run: SimRun, worker: str, at: float) -> None:
        self.ended += 1
        for name, amount in demand_of(run.shape).resources.items():
            self._held[run.pool, name] -= amount

    def hold(self, run: SimRun, seconds: float) -> None:
        """A run has its resources from now on, for so long within the time that is looked at."""
        demand = demand_of(run.shape).resources
        for name, amount in demand.items():
            measure = run.pool, name
            self._held[measure] = held = self._held[measure] + amount
            self.used[measure] += amount * seconds
            if held > self.peaks[measure]:
                self.peaks[measure] = held
        self.pool_seconds[run.share] += dominant_share(demand, self.totals[run.pool]) * seconds

    def _stand(self, run: SimRun, what: str, at: float) -> None:
        before = self.standing.get(run.id)
        if before is not None:
            before[1].go(at)
        crowd = self.crowds.get(what)
        if crowd is None:
            crowd = self.crowds[what] = Crowd(what)
        crowd.come(at)
        self.standing[run.id] = run, crowd
