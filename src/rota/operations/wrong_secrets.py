"""Wrong secrets, counted: guessing gets slow, on every way in."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv6Address, IPv6Network, ip_address

from rota.domain.credentials import shown_part
from rota.domain.errors import Unavailable

_MAX_BEGINNING = 40
_MAX_COUNTED = 10_000  # addresses and beginnings of secrets


class WrongSecrets:
    """Recent wrong secrets, counted by network and by the beginning of the secret.

    They slow guessing down and are never held against a right secret: anybody can make others'
    browsers show wrong ones. Those of longest ago are dropped first.
    """

    def __init__(
        self, limit: int, per: timedelta, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._per = per.total_seconds()
        self._monotonic = monotonic
        self._shown_at: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, address: str, secret: str) -> None:
        """Count a wrong secret; raise `Unavailable` if there were too many of its kind before."""
        beginning = shown_part(secret)[:_MAX_BEGINNING]
        waits = (self._count(f"from {network_of(address)}"), self._count(f"of {beginning}"))
        self._refuse(max(waits), "too many wrong tokens or login links")

    def count(self, key: str, complaint: str) -> None:
        """Count one more of whoever this is; raise `Unavailable` if there were too many before."""
        self._refuse(self._count(key), complaint)

    def require_few(self, key: str, complaint: str) -> None:
        """Raise `Unavailable` if there were too many of whoever this is; count nothing."""
        self._refuse(self._wait(self._shown_at.get(key, deque()), self._monotonic()), complaint)

    def _refuse(self, wait: float, complaint: str) -> None:
        if wait:
            raise Unavailable(
                complaint,
                code="too_many_logins",
                hint="wait a little and try again",
                facts={"retry_after_seconds": math.ceil(wait)},
            )

    def _count(self, key: str) -> float:
        """Count one more; return for how many seconds the limit was reached before, or 0."""
        now = self._monotonic()
        times = self._shown_at.setdefault(key, deque(maxlen=self._limit))
        wait = self._wait(times, now)
        times.append(now)
        self._shown_at.move_to_end(key)
        if len(self._shown_at) > _MAX_COUNTED:
            self._shown_at.popitem(last=False)
        return wait

    def _wait(self, times: deque[float], now: float) -> float:
        return max(times[0] + self._per - now, 0.0) if len(times) == self._limit else 0.0


_ONE_SUBSCRIBER = 64  # bits of an IPv6 address that its owner cannot choose


def network_of(address: str) -> str:
    """Return what limits go by: an IPv4 address, or the network of one that is IPv6.

    Whoever has one of these has 2^64 of them.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Network((found, _ONE_SUBSCRIBER), strict=False))
    return address
