"""What every operation works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.domain.resources import Vector
from rota.operations.idle_workers import IdleWorkers
from rota.operations.kept_forecast import KeptForecast, ShortagesAhead
from rota.operations.specs import SpecBook
from rota.ports.blobs import Blobs
from rota.ports.queue import Queue
from rota.ports.store import Store


@dataclass(frozen=True, slots=True)
class Backends:
    """The store, the queue and the blob store of one deployment."""

    store: Store
    queue: Queue
    blobs: Blobs
    specs: SpecBook = field(default_factory=SpecBook)  # read from this store
    idle: IdleWorkers = field(default_factory=IdleWorkers)  # of this process
    # The most that one run may ask of its worker, by pool; a pool that is missing takes any.
    largest: Mapping[str, Vector] = field(default_factory=dict)
    forecast: KeptForecast = field(default_factory=KeptForecast)  # the latest that was asked for
    shortages: ShortagesAhead = field(default_factory=ShortagesAhead)  # by this process
