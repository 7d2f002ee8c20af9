"""What a dialect brings: a driver that runs scripts, a clock, a look at a store from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeAlias, TypeVar

from rota.store.script import MakeScript

T = TypeVar("T")
OnCommit: TypeAlias = Callable[[], None]


def no_effects() -> None:
    """For transactions that concern nobody else."""


class Urgency(IntEnum):
    """The order in which waiting transactions go: leases above all, people last."""

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


class Ticker(Protocol):
    """A clock that a store can be given: microseconds since 1970, never going back."""

    def now(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StoreInspection:
    """A look at a store without opening it as a server would: nothing is written."""

    place: str  # where it is, without secrets
    schema: int  # number of its latest migration; 0: it has none yet
    now: int | None  # its clock, in microseconds; None: it cannot say
    damage: str = ""  # "": it looks whole
    is_pooled: bool = False  # whether somebody stands between who may mix up connections
