"""How a worker that lost its servers dials again: ever slower, and without filling the log."""

from __future__ import annotations

import random
from datetime import timedelta

import structlog

from rota.domain.lease import RENEWALS_PER_LEASE
from rota.ports.clock import Clock

log = structlog.get_logger()

LONGEST_DELAY = timedelta(seconds=2)
_TELL_AGAIN = timedelta(minutes=1)
_DIALS_PER_RENEWAL = 2  # what is left of a lease must be enough for this many


class Reconnecting:
    """The failures since the worker was last connected."""

    def __init__(self, clock: Clock, first_delay: timedelta) -> None:
        self._clock = clock
        self._first_delay = first_delay
        self._delay = first_delay
        self._told_at: dict[str, float] = {}  # by reason

    def succeeded(self) -> None:
        """It is connected: the next failure is news again."""
        self._delay = self._first_delay
        self._told_at.clear()

    def failed(self, reason: str, lease: timedelta | None) -> timedelta:
        """How long to wait before the next try, which must come within the lease if there is one.

        A reason is logged when it is new, and then once a minute.
        """
        self._tell(reason)
        longest = LONGEST_DELAY
        if lease is not None:
            longest = min(longest, lease / (RENEWALS_PER_LEASE * _DIALS_PER_RENEWAL))
        delay = min(self._delay, longest)
        self._delay = min(self._delay * 2, LONGEST_DELAY)
        return delay * random.uniform(0.5, 1)  # noqa: S311 (spreads workers, guards nothing)

    def _tell(self, reason: str) -> None:
        now = self._clock.monotonic()
        told_at = self._told_at.get(reason)
        if told_at is None or now - told_at >= _TELL_AGAIN.total_seconds():
            log.warning("worker.disconnected", error=reason)
            self._told_at[reason] = now
