"""How the verbs of the store reach the database, and who goes first."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from rota.store.script import MakeScript

T = TypeVar("T")


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

    async def write(self, make: MakeScript[T], urgency: Urgency) -> T:
        """Return once durable."""
        ...

    async def read(self, make: MakeScript[T], urgency: Urgency = Urgency.API) -> T: ...

    async def close(self) -> None: ...
