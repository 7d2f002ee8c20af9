"""The clock of a store in a file: wall time once, then only forwards."""

from __future__ import annotations

import time


class FileClock:
    """Monotonic time over a stored high-water mark.

    A step of the wall clock while the store is open changes nothing; a wall clock that is behind
    the mark when the store is opened is not believed. So no due time is ever met twice.
    """

    def __init__(self, mark: int) -> None:
        wall = time.time_ns() // 1000  # noqa: TID251 - where the store's own clock comes from
        self._base = max(wall, mark)
        self._started = _boottime()

    def now(self) -> int:
        return self._base + _boottime() - self._started


def _boottime() -> int:
    # Counts on while the machine is suspended, unlike CLOCK_MONOTONIC.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
