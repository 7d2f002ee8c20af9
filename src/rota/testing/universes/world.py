"""Where a universe takes place: a store, and what servers do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeAlias

from rota.domain.ids import JobId, RunId
from rota.domain.states import RunState
from rota.ports.clock import Clock
from rota.ports.records import LedgerEntry
from rota.ports.store import RunStore
from rota.testing.universes.plan import Plan
from rota.testing.universes.server import Staff
from rota.testing.universes.timeline import Timeline


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
    def failures(self) -> int: ...
    @property
    def losses(self) -> int: ...


class World(Protocol):
    """What differs between one kind of universe and another."""

    @property
    def runs(self) -> RunStore:
        """What people do with runs."""
        ...

    def employ(self, server: str, clock: Clock, lease_seconds: float) -> Staff:
        """A server begins."""
        ...

    async def all_runs(self) -> Sequence[RunFacts]: ...

    async def ledger(self, job: JobId, until: datetime) -> list[LedgerEntry]:
        """The answers to all due times of a job."""
        ...

    async def held(self) -> Sequence[object]:
        """Whatever is not free."""
        ...


OpenWorld: TypeAlias = Callable[[Timeline, Plan], AbstractAsyncContextManager[World]]
