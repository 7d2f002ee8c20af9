"""What operations are given: the ports of one deployment, and what this process keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.domain.resources import Vector
from rota.operations.kept_forecast import KeptForecast, ShortagesAhead
from rota.operations.specs import SpecBook
from rota.ports.blobs import Blobs
from rota.ports.idle_workers import IdleWorkers, NobodyIdle
from rota.ports.queue import Queue
from rota.ports.store import Store


@dataclass(frozen=True, slots=True)
class Pools:
    """What settings say about pools."""

    # The most that one run may ask of its worker, by pool; a pool that is missing takes any.
    largest: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What this process knows of the time ahead."""

    forecast: KeptForecast = field(default_factory=KeptForecast)  # the latest that was asked for
    shortages: ShortagesAhead = field(default_factory=ShortagesAhead)  # of the latest prediction


@dataclass(frozen=True, slots=True)
class Engine:
    """One deployment, as a process of it uses it."""

    store: Store
    queue: Queue
    blobs: Blobs
    idle_workers: IdleWorkers = field(default_factory=NobodyIdle)  # of this process
    specs: SpecBook = field(default_factory=SpecBook)  # of jobs, read from this store
    pools: Pools = field(default_factory=Pools)
    outlook: Outlook = field(default_factory=Outlook)
