"""Arithmetic of leases, and a node's estimate of the store's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

RENEWALS_PER_LEASE = 3
MIN_LEASE = timedelta(seconds=1)
MAX_LEASE = timedelta(hours=24)
DEFAULT_LEASE = timedelta(seconds=30)
SERVER_LEASE = timedelta(seconds=5)  # how long nobody fires for a server that died
LONE_SERVER_LEASE = timedelta(seconds=30)  # where no other server could take over anyway


def renewal_interval(lease: timedelta) -> timedelta:
    """Return a third of the lease: three chances to renew before it ends."""
    return lease / RENEWALS_PER_LEASE


def guard_margin(lease: timedelta) -> timedelta:
    """Return how long before the store's lease ends all on the worker's side must be dead.

    Two seconds or a tenth of the lease; short leases keep a third, so that a healthy worker that
    renews every third always has time to spare.
    """
    return min(max(timedelta(seconds=2), lease / 10), lease / 3)


@dataclass(frozen=True, slots=True)
class Sight:
    """Heartbeats of a worker's session as a server sees them."""

    beats: int
    since: float  # monotonic time of that server when it first saw this many


def look_at(before: Sight | None, beats: int, now: float) -> Sight:
    """Update what a server has seen of a session."""
    return before if before is not None and before.beats == beats else Sight(beats, now)


def is_silent(sight: Sight, lease: timedelta, now: float) -> bool:
    """Return whether no beat was seen for a whole lease.

    Only then may the store be asked whether the lease has ended by its clock. So neither a store
    that was away nor a clock that jumped costs a healthy worker its runs.
    """
    return now - sight.since > lease.total_seconds()


@dataclass(frozen=True, slots=True)
class StoreTime:
    """Time of the store's clock, and the node's monotonic time when that arrived.

    Carried forward it is a lower bound (the answer was already old when it arrived), so whoever
    acts on it is never early.
    """

    store_now: datetime
    received_at: float  # monotonic seconds

    def at(self, monotonic: float) -> datetime:
        """Return a lower bound of the store's time at a later monotonic time."""
        return self.store_now + timedelta(seconds=monotonic - self.received_at)

    def monotonic_at(self, when: datetime) -> float:
        """Return the monotonic time by which the store's clock has surely passed `when`."""
        return self.received_at + (when - self.store_now).total_seconds()
