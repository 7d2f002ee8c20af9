"""Where a run stands, and what would move it on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.ids import RunId
from rota.domain.run import Reason, Run
from rota.ports.places import Reserved


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that has what another one waits for."""

    run: RunId
    job: str
    ends_at: datetime | None  # by how long such runs take; None: nobody knows


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A gate that a run stands at, as it is now."""

    reason: Reason
    holders: tuple[Holder, ...] = ()  # the oldest first; not all of them where there are many
    before: int | None = None  # runs that wait for the same and go first; None: not counted
    waiting: int | None = None  # all that wait for it; None: not counted
    next_at: datetime | None = None  # the next due time of the job that it waits for


@dataclass(frozen=True, slots=True)
class OrderOfService:
    """A run's turn among all that wait for the same pool, with the numbers that decide it."""

    position: int  # runs that go first
    of_higher_priority: int  # of these
    of_own_line: int  # of the same priority and share
    of_other_shares: int  # all others
    latest_turn: int  # it goes with one of so many starts of the pool, whatever comes
    share: str
    tag: float  # F, of its line
    virtual_time: float  # V, the least F of the lines of its priority that have runs
    cost: float  # what its start adds to F, before weights
    boost: float  # the head start by its priority
    weight: float  # as it counts among the lines that have runs
    entitled: float  # the part of the pool that its share may have
    used: float  # the part that its live attempts have
    reservation: Reserved | None = None  # of its pool


@dataclass(frozen=True, slots=True)
class NotReason:
    """What might be thought to hold a run, and does not."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a run stands and what would move it on."""

    run: Run
    summary: str  # one sentence
    obstacles: tuple[Obstacle, ...] = ()  # in the order of the gates
    passed: tuple[str, ...] = ()  # gates that it has behind it, in their order
    since: datetime | None = None  # it has stood there
    order: OrderOfService | None = None  # None: it does not wait
    not_reasons: tuple[NotReason, ...] = ()
    starts_at: datetime | None = None  # by the forecast; None: unknown

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(obstacle.reason for obstacle in self.obstacles)
