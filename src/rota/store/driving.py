"""How the verbs of the store reach the database, and who goes first."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol, TypeAlias, TypeVar

from rota.store.script import MakeScript

T = TypeVar("T")
OnCommit: TypeAlias = Callable[[], None]


def no_effects() -> None:
    """For transactions that concern nobody else."""


class Urgency(IntEnum):
    """Who goes first when several transactions wait: leases above all, people last."""

    RENEW = 0
    FIRE = 1
    GLANCE = 2  # who is that, what time is it: asked by the most urgent too
    CLAIM = 3
    FINISH = 4
    API = 5


class Driver(Protocol):
    """Runs scripts in transactions."""

    async def write(
        self, make: MakeScript[T], urgency: Urgency, on_commit: OnCommit = no_effects
    ) -> T:
        """Run a script in a transaction, and again if it lost against another one.

        Returns once it is durable. Cancelling the caller does not stop it. `on_commit` is called on
        the event loop, once, if it was committed, whether or not the caller still waits.
        """
        ...

    async def read(self, make: MakeScript[T], urgency: Urgency = Urgency.API) -> T: ...

    async def close(self) -> None: ...
