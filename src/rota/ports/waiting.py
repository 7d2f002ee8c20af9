"""What the store does about runs that wait for other jobs, or for a worker."""

from __future__ import annotations

from typing import Protocol

from rota.ports.records import Released


class WaitingStore(Protocol):
    """Part of `rota.ports.store.Store`."""

    async def follow_ends(self, limit: int) -> Released:
        """Answer up to `limit` completed runs that others follow, each exactly once.

        Jobs without a schedule get a run; due runs that waited pass the gates again.
        """
        ...

    async def release_fitting(self, limit: int) -> Released:
        """Runs that no worker could ever take pass the gates again, if one has come that can.

        At most `limit` of those that ask for the same.
        """
        ...
