"""What the store does about runs that wait: for a person, for other jobs, or for a worker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rota.domain.ids import RunId
from rota.ports.records import Released, Wakes


class WaitingStore(Protocol):
    """Part of `rota.ports.store.Store`."""

    async def hold_run(self, run: RunId, *, actor: str) -> Wakes:
        """A waiting run goes nowhere until it is let go. Conflict: it does not wait."""
        ...

    async def let_go(self, run: RunId, *, actor: str) -> Wakes:
        """The end of such a hold. Conflict: nobody holds it."""
        ...

    async def set_priority(self, run: RunId, priority: int, *, actor: str) -> Wakes:
        """Of a run that waits. Conflict: it does not."""
        ...

    async def follow_ends(self, limit: int) -> Released:
        """Answer up to `limit` completed runs that others follow, each exactly once.

        Jobs without a schedule get a run; due runs that waited pass the gates again.
        """
        ...

    async def followers(
        self, project: str, upstreams: Collection[str]
    ) -> dict[str, tuple[str, ...]]:
        """The jobs that follow these, in order; by the name of the one that they follow."""
        ...

    async def release_fitting(self, limit: int) -> Released:
        """Runs that no worker could ever take pass the gates again, if one has come that can.

        At most `limit` of those that ask for the same.
        """
        ...
