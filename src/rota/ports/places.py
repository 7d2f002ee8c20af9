"""What the store tells about lines of runs: their weights, and the place of a run that waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from rota.domain.ids import RunId
from rota.domain.order import Chain
from rota.domain.shared_keys import Demands
from rota.domain.turns import QueuedLine


@dataclass(frozen=True, slots=True)
class ShareWeight:
    """How much of a pool a share gets, against others: 1 where nobody said anything."""

    share: str  # a project, a user in it (project/user), or the key that jobs name
    weight: float
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class LineState:
    """A line of runs as the order of service sees it."""

    share: str
    priority: int
    tag: float  # F
    weight: float  # as it counts among the active lines of the pool
    is_active: bool


@dataclass(frozen=True, slots=True)
class Reserved:
    """A worker that is kept free for the best-ranked run that does not fit anywhere now."""

    run: RunId
    worker: str
    until: datetime  # it is prolonged while that run is the best


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run waits, and all that decides who goes before it."""

    share: str
    shape: str
    cost: float  # what its line will be charged for it, in pool-seconds, before weights
    line: Chain  # its own, active or not
    lines: tuple[QueuedLine, ...]  # of its pool, those with runs
    in_line: int  # runs that go before it in its own line
    older: int  # queued runs of its pool that are older
    used: float  # the part of the pool that live attempts of its share take
    keys: Demands = field(default_factory=dict)
    blocked_on: str = ""  # the first key that it waits for; "": none
    before: int = 0  # runs that wait for the same and go before it
    reservation: Reserved | None = None  # of its pool


class LineStore(Protocol):
    """Part of `rota.ports.store.Store`."""

    async def share_weights(self) -> list[ShareWeight]: ...

    async def set_share_weight(self, share: str, weight: float, *, actor: str) -> None: ...

    async def lines(self, pool: str) -> list[LineState]:
        """The lines of a pool, as the next claim will see them."""
        ...

    async def place_of(self, run: RunId) -> Place | None:
        """None: it does not wait."""
        ...
