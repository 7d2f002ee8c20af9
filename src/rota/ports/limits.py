"""Limits, keys and waiting runs, as the store keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from rota.domain.ids import RunId
from rota.domain.keys import Declaration, Key, KeyKind
from rota.ports.records import (
    Declared,
    KeyUse,
    ProjectCounts,
)


class LimitStore(Protocol):
    """Limits and keys, a part of `rota.ports.store.Store`."""

    async def declarations(
        self, project: str | None = None, kind: KeyKind | None = None
    ) -> list[Declared]:
        """List declarations by kind, project and name; without a project, those of all."""
        ...

    async def save_declarations(self, new: Sequence[Declaration], *, actor: str) -> None:
        """Create or replace declarations; they act at once on waiting runs."""
        ...

    async def delete_declaration(
        self, kind: KeyKind, project: str, name: str, *, actor: str
    ) -> bool:
        """Delete a declaration; return whether it existed. `Conflict`: a job uses this resource."""
        ...

    async def key_uses(self, keys: Collection[Key]) -> Mapping[Key, KeyUse]:
        """Return the states of these keys. Those without a rule are left out."""
        ...

    async def project_counts(self, project: str) -> ProjectCounts: ...

    async def release_keys(self, limit: int) -> int:
        """Release runs that waited for a shared key, as far as there is room; drop stale uses.

        Returns how many went or wait for something else now.
        """
        ...

    async def forget_keys(self, limit: int) -> int:
        """Delete keys whose state is as if nobody had ever used them; return how many.

        `limit` is how many are looked at in one transaction.
        """
        ...

    async def next_key_at(self) -> datetime | None:
        """Return when the next run that waits for tokens may go; None: none waits.

        Those that could not go by the latest `release_keys`, although it was time, are left out.
        """
        ...


class WaitingStore(Protocol):
    """Waiting runs, a part of `rota.ports.store.Store`."""

    async def hold_run(self, run: RunId, *, actor: str) -> None:
        """Hold a waiting run until `let_go`. Conflict: it does not wait."""
        ...

    async def let_go(self, run: RunId, *, actor: str) -> None:
        """End a person's hold. Conflict: nobody holds it."""
        ...

    async def set_priority(self, run: RunId, priority: int, *, actor: str) -> None:
        """Change the priority of a waiting run. Conflict: it does not wait."""
        ...

    async def follow_ends(self, limit: int) -> int:
        """Process up to `limit` completed runs that other jobs follow, each once; return how many.

        Jobs without a schedule get a run; due runs that waited pass the gates again.
        """
        ...

    async def followers(
        self, project: str, upstreams: Collection[str]
    ) -> dict[str, tuple[str, ...]]:
        """Return the jobs that follow these, in order; by the name of the job that they follow."""
        ...

    async def release_fitting(self, limit: int) -> int:
        """Pass runs that no worker could ever take through the gates again, if one has come that
        can.

        Returns how many, at most `limit` of those that ask for the same.
        """
        ...
