"""The machine's clocks: the only module that may read them."""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

_libc = ctypes.CDLL(None, use_errno=True)  # `os.timerfd_create` comes with Python 3.13
_NANOSECONDS = 1_000_000_000
_COUNT = 8  # bytes that a timer has to read once it is over


class SystemClock:
    """Implements `rota.ports.clock.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        # Counts on while the machine is suspended, unlike CLOCK_MONOTONIC.
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(duration.total_seconds(), 0))

    @contextmanager
    def alarm(self, ring: Callable[[], None]) -> Iterator[KernelAlarm]:
        alarm = KernelAlarm(ring)
        try:
            yield alarm
        finally:
            alarm.close()


class KernelAlarm:
    """Implements `rota.ports.clock.Alarm` by a timer of the kernel, late by some 50 microseconds.

    Timers of the event loop count milliseconds: who must not be late by one would have to wake
    before its time, and then keep a processor busy until it has come.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer = _checked(
            _libc.timerfd_create(time.CLOCK_BOOTTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        )
        self._loop.add_reader(self._timer, self._is_over)

    def set(self, seconds: float) -> None:
        nanoseconds = max(math.ceil(seconds * _NANOSECONDS), 1)  # none would stop the timer
        once = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, _NANOSECONDS))
        _checked(_libc.timerfd_settime(self._timer, 0, once, None))

    def close(self) -> None:
        self._loop.remove_reader(self._timer)
        os.close(self._timer)

    def _is_over(self) -> None:
        with suppress(BlockingIOError):  # it was set anew meanwhile
            os.read(self._timer, _COUNT)
            self._ring()


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
