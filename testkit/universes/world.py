"""Where a universe takes place: a store, and what servers do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from rota.domain.carts.intake import NewItem
from rota.domain.carts.states import CartState, ItemState
from rota.domain.ids import CartId, JobId, RunId
from rota.domain.states import RunState
from rota.ports.carts import Command, NewCart
from rota.ports.clock import Clock
from rota.ports.records import LedgerEntry
from rota.ports.store import RunStore, WaitingStore
from testkit.universes.plan import Plan
from testkit.universes.server import Staff
from testkit.universes.timeline import Timeline


class RunFacts(Protocol):
    """What a person can see of a run."""

    @property
    def id(self) -> RunId: ...
    @property
    def job(self) -> str: ...
    @property
    def state(self) -> RunState: ...
    @property
    def attempt(self) -> int: ...
    @property
    def follows(self) -> RunId | None: ...
    @property
    def cart(self) -> CartId | None: ...


@dataclass(frozen=True, slots=True)
class SeenItem:
    """What a person can see of an item."""

    state: ItemState
    run: RunId | None  # None: it never had one


@dataclass(frozen=True, slots=True)
class SeenCart:
    """What a person can see of a cart."""

    id: CartId
    state: CartState
    items: Mapping[str, SeenItem]


class World(Protocol):
    """What differs between one kind of universe and another."""

    @property
    def runs(self) -> RunStore:
        """What people do with runs."""
        ...

    @property
    def waiting(self) -> WaitingStore:
        """What they do with those that wait."""
        ...

    async def submit_cart(self, cart: NewCart, items: Sequence[NewItem]) -> None: ...

    async def command_cart(self, cart: CartId, command: Command) -> None:
        """`Conflict` if it cannot be granted."""
        ...

    def employ(self, server: str, clock: Clock, lease_seconds: float) -> Staff:
        """A server begins."""
        ...

    async def all_runs(self) -> Sequence[RunFacts]: ...

    async def all_carts(self) -> Sequence[SeenCart]: ...

    async def ledger(self, job: JobId, until: datetime) -> list[LedgerEntry]:
        """The answers to all due times of a job."""
        ...

    async def held(self) -> Sequence[object]:
        """Whatever is not free."""
        ...


OpenWorld: TypeAlias = Callable[[Timeline, Plan], AbstractAsyncContextManager[World]]
