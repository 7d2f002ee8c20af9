"""Fake clocks that move only when told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

from rota.clock import SystemClock
from rota.domain.ids import instant, micros
from rota.ports.clock import Alarm

START = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


class FakeTicker:
    """Store's clock that a test moves: microseconds since 1970."""

    def __init__(self, start: datetime = START) -> None:
        self._micros = micros(start)

    def now(self) -> int:
        return self._micros

    @property
    def instant(self) -> datetime:
        """Return the current instant."""
        return instant(self._micros)

    def advance(self, duration: timedelta) -> datetime:
        """Move on, and return the new instant. A store's clock never goes back."""
        if duration < timedelta(0):
            raise ValueError("a store's clock never goes back")
        self._micros += duration // timedelta(microseconds=1)
        return self.instant


class FakeClock:
    """Node's clock that follows a store's fake one. Sleeping moves both on."""

    def __init__(self, ticker: FakeTicker) -> None:
        self._ticker = ticker

    def now(self) -> datetime:
        return self._ticker.instant

    def monotonic(self) -> float:
        return self._ticker.now() / 1_000_000

    async def sleep(self, duration: timedelta) -> None:
        self._ticker.advance(duration)

    def alarm(self, ring: Callable[[], None]) -> AbstractContextManager[Alarm]:
        return SystemClock().alarm(ring)
