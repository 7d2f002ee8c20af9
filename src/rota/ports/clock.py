"""Clock of a node."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol


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
