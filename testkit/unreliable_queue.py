"""Unreliable queue: loses, doubles, delays and reorders messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from rota.queue.local import LocalListener, LocalQueue, LocalTaker

_Delivery = Callable[[], None]


class UnreliableQueue:
    """Implements `rota.ports.queue.Queue` in one process; the same seed misbehaves the same way.

    It loses about `loss` of all messages; the rest comes once or twice, at once or at any later
    call, in any order, and what is pending when it closes never comes.
    """

    def __init__(self, seed: int, *, loss: float = 0.5) -> None:
        self._random = Random(seed)  # noqa: S311 (chosen, not secret)
        self._loss = loss
        self._inner = LocalQueue()
        self._kept_back: list[_Delivery] = []
        self.lost = 0
        self.doubled = 0
        self.delayed = 0

    def announce(self, topic: str, payload: str = "") -> None:
        self._meddle(partial(self._inner.announce, topic, payload))

    def offer(self, pool: str, runs: Sequence[str] = ()) -> None:
        self._meddle(partial(self._inner.offer, pool, tuple(runs)))

    def listen(self, *topics: str) -> LocalListener:
        return self._inner.listen(*topics)

    def takes(self, pool: str) -> LocalTaker:
        return self._inner.takes(pool)

    def watched(self, prefix: str) -> frozenset[str]:
        return self._inner.watched(prefix)

    async def close(self) -> None:
        await self._inner.close()

    def _meddle(self, deliver: _Delivery) -> None:
        if self._random.random() < self._loss:
            self.lost += 1
            return
        copies = self._random.choice((1, 1, 2))
        self.doubled += copies - 1
        for _ in range(copies):
            if self._random.random() < 0.5:
                deliver()
            else:
                self.delayed += 1
                self._kept_back.append(deliver)
        if self._random.random() < 0.3:
            self._release_some()

    def _release_some(self) -> None:
        self._random.shuffle(self._kept_back)
        for _ in range(self._random.randint(0, len(self._kept_back))):
            self._kept_back.pop()()
