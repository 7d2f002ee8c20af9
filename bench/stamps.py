"""How work says that it ran: fixed-size records appended to one file.

Appending costs microseconds, works from any process, and makes the count independent of what a
scheduler reports about itself. Standard library only: peers use it too.
"""

from __future__ import annotations

import functools
import os
import struct
import time
from pathlib import Path

VARIABLE = "BENCH_STAMPS"  # names the file

_TICK = struct.Struct("<q")  # monotonic nanoseconds
_MARK = struct.Struct("<dd")  # due and now, seconds since 1970


def tick() -> None:
    """Note that work ran."""
    os.write(_descriptor(), _TICK.pack(time.monotonic_ns()))


def mark(due: float) -> None:
    """Note when work began that was due at an instant."""
    os.write(_descriptor(), _MARK.pack(due, time.time()))


def count_ticks(path: Path) -> int:
    return _size(path) // _TICK.size


def count_marks(path: Path) -> int:
    return _size(path) // _MARK.size


def read_ticks(path: Path) -> list[float]:
    """In seconds."""
    return [nanoseconds / 1e9 for (nanoseconds,) in _TICK.iter_unpack(path.read_bytes())]


def read_lateness(path: Path) -> list[float]:
    """Seconds from due to begun, for each piece of work."""
    return [began - due for due, began in _MARK.iter_unpack(path.read_bytes())]


@functools.cache
def _descriptor() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
