"""What the store in memory keeps of runs and sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rota.domain.gates import ActiveRun, hold_key
from rota.domain.ids import CartId, RunId, SessionId, micros
from rota.domain.key_gates import Rank, rank_of
from rota.domain.keys import Demands
from rota.domain.order import Chain, group_of
from rota.domain.resources import Vector
from rota.domain.run import AttemptResult, Trigger
from rota.domain.states import TRANSITIONS, RunEvent, RunState
from rota.ports.work import Fence, Work
from testkit.universes.catalogue import KnownJob


@dataclass(slots=True, eq=False)
class StoredRun:
    id: RunId
    known: KnownJob
    trigger: Trigger
    due_at: datetime
    share: str
    inputs: Mapping[str, Any] | None = None
    is_caught_up: bool = False
    cart: CartId | None = None
    item: str | None = None
    follows: RunId | None = None
    seq: int = 0  # from here on: as the store decides
    keys: Demands = field(default_factory=dict)
    created_at: int = 0  # in microseconds
    ended_at: int = 0  # the same; 0: it is not final
    state: RunState = RunState.SCHEDULED
    eligible_at: int = 0  # not before, in microseconds
    blocked_on: str = ""
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    session: SessionId | None = None
    claimed_at: int = 0
    is_cancel_requested: bool = False
    # How its attempts ended, and whose they were.
    results: dict[int, tuple[SessionId, AttemptResult]] = field(default_factory=dict)

    @property
    def job(self) -> str:
        return self.known.name

    @property
    def line(self) -> str:
        return f"{self.known.rules.pool}/{self.known.rules.priority}/{self.share}"

    @property
    def rank(self) -> Rank:
        return rank_of(self.known.rules.priority, self.created_at, self.seq)

    @property
    def fence(self) -> Fence:
        return Fence(self.id, self.attempt)

    @property
    def latest_end(self) -> float:
        """When the attempt at hand must be over, in microseconds."""
        timeout = self.known.rules.timeout
        return self.claimed_at + timeout.total_seconds() * 1e6 if timeout else float("inf")

    def takes(self, capacity: Vector) -> Vector:
        """Of a worker that has this."""
        return self.known.takes(capacity, self.losses)

    def move(self, event: RunEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    def as_active(self) -> ActiveRun:
        return ActiveRun(
            self.id,
            self.seq,
            self.state,
            self.trigger,
            self.attempt,
            is_caught_up=self.is_caught_up,
            is_held=self.state is RunState.BLOCKED and self.blocked_on == hold_key(self.id),
        )

    def as_chain(self, tag: float) -> Chain:
        return Chain(self.line, self.known.rules.priority, tag, group=group_of(self.share))

    def as_work(self) -> Work:
        return Work(
            self.id,
            self.attempt,
            self.known.id,
            1,
            micros(self.due_at),
            dict(self.inputs) if self.inputs else None,
            cart=self.cart,
            item=self.item,
        )


@dataclass(slots=True, eq=False)
class StoredSession:
    id: SessionId
    worker: str
    capacity: Vector
    slots: int
    lease: int  # microseconds
    expires_at: int
    registered_at: int
    beats: int = 0
    stream: int = 1
    alive: bool = True
    server: str = ""
