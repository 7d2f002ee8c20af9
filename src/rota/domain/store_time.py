"""A node's idea of the store's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class StoreTime:
    """What the store's clock said, and the node's monotonic time when that arrived.

    Carried forward it is a lower bound (the answer was already old when it arrived), so whoever
    acts on it is never early.
    """

    store_now: datetime
    received_at: float  # monotonic seconds

    def at(self, monotonic: float) -> datetime:
        """The store's time at a later monotonic time, at least."""
        return self.store_now + timedelta(seconds=monotonic - self.received_at)

    def monotonic_at(self, when: datetime) -> float:
        """The monotonic time by which the store's clock has surely passed `when`."""
        return self.received_at + (when - self.store_now).total_seconds()
