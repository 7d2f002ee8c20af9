"""Parts of a simulated world. Instants and lengths are seconds, as floats."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from rota.domain.keys import Demands, Key
from rota.domain.resources import Vector
from rota.domain.spec import DEFAULT_POOL, DEFAULT_PRIORITY


@dataclass(frozen=True, slots=True)
class SimWorker:
    """Worker that is there all the time."""

    name: str
    pool: str
    capacity: Vector  # thousandths, slots included
    labels: Mapping[str, str] = field(default_factory=dict)
    functions: Collection[str] = ()
    offers: Collection[str] = frozenset()  # of walls, as `kind/name`


@dataclass(frozen=True, slots=True)
class SimRun:
    """Run with the length that it will turn out to have."""

    id: str
    job: str
    arrives_at: float
    seconds: float  # from its start to its end, all attempts included
    pool: str = DEFAULT_POOL
    priority: int = DEFAULT_PRIORITY
    share: str = ""
    shape: str = ""
    timeout: float | None = None
    expected: float | None = None  # what the scheduler believes; None: nothing
    demands: Demands = field(default_factory=dict)  # of shared keys
    group: str = ""  # runs that are only let go up to `limit` at a time
    limit: int | None = None
    created_at: float | None = None  # waiting for keys counts from here; None: from its arrival
    drop_at: float = inf  # from when on it may not start any more


@dataclass(frozen=True, slots=True)
class Start:
    """Start of a run: when and where."""

    run: SimRun
    worker: str
    at: float


class Observer:
    """Observer of events in a world, in order of time; override what is of interest."""

    def on_queued(self, run: SimRun, at: float) -> None:
        """Note that the run passed its gates and waits for a worker."""

    def on_blocked(self, run: SimRun, key: Key, at: float, eligible_at: float | None) -> None:
        """Note that the run waits for a key; `eligible_at` None: until others end."""

    def on_start(self, run: SimRun, worker: str, at: float) -> None: ...

    def on_drop(self, run: SimRun, at: float) -> None:
        """Note that it is too late for the run to start."""

    def on_end(self, run: SimRun, worker: str, at: float) -> None: ...


class Starts(Observer):
    """Observer that keeps every start."""

    def __init__(self) -> None:
        self.all: list[Start] = []

    def on_start(self, run: SimRun, worker: str, at: float) -> None:
        self.all.append(Start(run, worker, at))
