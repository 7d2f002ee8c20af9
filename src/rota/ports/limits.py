"""What the store is given and gives back about shared keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from rota.domain.ids import RunId
from rota.domain.keys import Declaration, Key, KeyKind, KeyState


@dataclass(frozen=True, slots=True)
class Declared:
    """A declaration as it stands."""

    declaration: Declaration
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How a key stands and who has it."""

    state: KeyState
    holders: tuple[RunId, ...] = ()  # live runs, the oldest first; at most 10
    waiting: int = 0  # runs that are BLOCKED on it


@dataclass(frozen=True, slots=True)
class ProjectCounts:
    """What a project has, of what its quota bounds by refusing more."""

    jobs: int
    waiting: int  # runs, of all who asked for them


class LimitStore(Protocol):
    """Part of `rota.ports.store.Store`."""

    async def declarations(
        self, project: str | None = None, kind: KeyKind | None = None
    ) -> list[Declared]:
        """By kind, project and name; all projects without one."""
        ...

    async def save_declarations(self, new: Sequence[Declaration], *, actor: str) -> None:
        """Create or replace; acts at once on what waits."""
        ...

    async def delete_declaration(
        self, kind: KeyKind, project: str, name: str, *, actor: str
    ) -> bool:
        """Whether there was one. A resource that a job uses is refused (Conflict)."""
        ...

    async def key_uses(self, keys: Collection[Key]) -> Mapping[Key, KeyUse]:
        """How these keys stand. Those without a rule are left out."""
        ...

    async def project_counts(self, project: str) -> ProjectCounts: ...

    async def release_keys(self, limit: int) -> int:
        """Let runs go that waited for a shared key, as far as there is room; forget old holds.

        Returns how many went or wait for something else now.
        """
        ...

    async def forget_keys(self, limit: int) -> int:
        """Forget keys that stand as if nobody had ever used them; returns how many.

        `limit` is how many are looked at in one transaction.
        """
        ...

    async def next_key_at(self) -> datetime | None:
        """When the next run that waits for tokens may go; None: none waits.

        Those that could not go by the latest `release_keys`, although it was time, are left out.
        """
        ...
