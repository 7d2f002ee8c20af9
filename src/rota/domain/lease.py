"""The arithmetic of leases: who must be gone before whom."""

from __future__ import annotations

from datetime import timedelta

RENEWALS_PER_LEASE = 3
MIN_LEASE = timedelta(seconds=1)
MAX_LEASE = timedelta(hours=24)
DEFAULT_LEASE = timedelta(seconds=30)


def renewal_interval(lease: timedelta) -> timedelta:
    """Three chances to renew before a lease ends."""
    return lease / RENEWALS_PER_LEASE


def guard_margin(lease: timedelta) -> timedelta:
    """How long before the store's lease ends everything on the worker's side must be dead.

    Two seconds or a tenth of the lease; short leases keep a third, so that a healthy worker that
    renews every third always has time to spare.
    """
    return min(max(timedelta(seconds=2), lease / 10), lease / 3)
