"""How much of a server one caller may take: long work in turns, and so many streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from rota.domain.errors import Unavailable

_WAITING_OF_CALLER = 4
_STREAM_ENDS_SECONDS = 10  # before whoever was refused a stream asks again


class Turns:
    """Long work of callers: one piece of each at a time, perhaps few in all; others wait."""

    def __init__(
        self,
        refusal: Callable[[str], Unavailable],
        *,
        at_once: int | None = None,
        waiting_of_caller: int = _WAITING_OF_CALLER,
    ) -> None:
        self._refusal = refusal
        self._slots = nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        self._waiting_of_caller = waiting_of_caller
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: Counter[str] = Counter()

    @property
    def callers(self) -> list[str]:
        """List those with work that is under way or waits."""
        return [*self._wanted]

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait for the caller's turn; raise the refusal if too much of theirs waits already."""
        if self._wanted[caller] > self._waiting_of_caller:
            raise self._refusal(f"{self._wanted[caller]} of {caller} are under way or wait")
        self._wanted[caller] += 1
        try:
            async with self._locks.setdefault(caller, asyncio.Lock()), self._slots:
                yield
        finally:
            self._wanted[caller] -= 1
            if not self._wanted[caller]:
                del self._wanted[caller], self._locks[caller]


class OpenStreams:
    """Count of the streams that are open on this server: of each caller, and in all."""

    def __init__(self, *, of_caller: int, in_all: int) -> None:
        self._most_of_caller = of_caller
        self._most = in_all
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def one_of(self, caller: str) -> Iterator[None]:
        """Count a stream while it is open; raise `Unavailable` if there are too many."""
        if self._open[caller] >= self._most_of_caller:
            raise _too_many_streams(
                f"{caller} has {self._open[caller]:,} open on this server",
                "end some of them; an admin can raise max_streams_per_caller",
            )
        if len(self) >= self._most:
            raise _too_many_streams(
                f"{len(self):,} are open on this server",
                "try again in a moment, or at another server; an admin can raise max_streams",
            )
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]


def _too_many_streams(reason: str, hint: str) -> Unavailable:
    return Unavailable(
        f"too many streams: {reason}",
        code="too_many_streams",
        hint=hint,
        facts={"retry_after_seconds": _STREAM_ENDS_SECONDS},
    )


def too_much_work(reason: str) -> Unavailable:
    """Return the refusal of forecasts and simulations."""
    return Unavailable(
        reason,
        code="too_many_at_once",
        hint="ask again in a few seconds; one after another is fastest",
        facts={"retry_after_seconds": 3},
    )
