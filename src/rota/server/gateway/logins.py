"""A bound on guessing: an address that failed to log in too often has to wait."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta

from rota.domain.errors import Unavailable

_MAX_ADDRESSES = 10_000


class FailedLogins:
    """Remembers the recent failures of each address; the longest quiet are forgotten first."""

    def __init__(
        self, limit: int, per: timedelta, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._per = per.total_seconds()
        self._monotonic = monotonic
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def require_room(self, address: str) -> None:
        """`Unavailable` while the address may not try."""
        failures = self._failures.get(address)
        if not failures or len(failures) < self._limit:
            return
        wait = failures[0] + self._per - self._monotonic()
        if wait > 0:
            raise Unavailable(
                "too many failed logins from this address",
                code="too_many_logins",
                hint="wait a little and try again",
                facts={"retry_after_seconds": math.ceil(wait)},
            )

    def record(self, address: str) -> None:
        """A login of this address failed."""
        failures = self._failures.setdefault(address, deque(maxlen=self._limit))
        failures.append(self._monotonic())
        self._failures.move_to_end(address)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)
