"""Clock of a node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol


class Alarm(Protocol):
    """Wakes its owner at an instant, more exactly than a sleep of the event loop."""

    def set(self, seconds: float) -> None:
        """Ring once after so many seconds, never before; an earlier setting counts no more."""
        ...


class Clock(Protocol):
    """A node's clock. It paces loops; the store's clock alone decides what is due or expired."""

    def now(self) -> datetime:
        """Return wall time, aware UTC: for logs and estimates, never for decisions."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only grow, also while the machine sleeps."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Wait; a fake clock returns when it has been moved that far."""
        ...


class AlarmClock(Clock, Protocol):
    """Clock for who must not be late by a millisecond."""

    def alarm(self, ring: Callable[[], None]) -> AbstractContextManager[Alarm]:
        """Return an alarm that calls `ring` from the event loop, until it is left.

        It counts real seconds, also that of a fake clock.
        """
        ...
