"""Virtual time: one action after another, in an order that a seed decides."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import count
from random import Random
from typing import TypeAlias

from rota.domain.ids import instant, micros
from testkit.clock import START

Action: TypeAlias = Callable[[], Awaitable[None]]

SECOND = 1_000_000  # microseconds, as the store counts


class TrueTime:
    """Store's clock, which is right by definition."""

    def __init__(self) -> None:
        self.micros = micros(START)

    def now(self) -> int:
        return self.micros

    @property
    def instant(self) -> datetime:
        return instant(self.micros)


class Timeline:
    """Store's clock and all pending actions."""

    def __init__(self, random: Random) -> None:
        self.clock = TrueTime()
        self.began_at = self.clock.micros
        self._is_stopped = False
        self._random = random
        self._numbers = count()
        self._coming: list[tuple[int, float, int, Action]] = []

    @property
    def now(self) -> int:
        """Return microseconds."""
        return self.clock.micros

    @property
    def elapsed(self) -> float:
        """Return seconds since the universe began."""
        return (self.now - self.began_at) / SECOND

    def at(self, when: int, action: Action, *, in_turn: bool = False) -> None:
        """Schedule an action. Actions of one instant come in random order.

        Those that come `in_turn` go before the rest of that instant, in the order in which they
        were scheduled.
        """
        tie = -1.0 if in_turn else self._random.random()
        soonest = max(when, self.clock.micros)
        heapq.heappush(self._coming, (soonest, tie, next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.clock.micros + int(seconds * SECOND), action)

    def stop(self) -> None:
        """Stop: no more actions happen."""
        self._is_stopped = True

    async def run(self, until: int) -> None:
        """Run actions until an instant, or until stopped."""
        while self._coming and self._coming[0][0] <= until and not self._is_stopped:
            self.clock.micros, _, _, action = heapq.heappop(self._coming)
            await action()
        if not self._is_stopped:
            self.clock.micros = until
