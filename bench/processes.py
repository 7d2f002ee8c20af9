"""Process trees, seen through /proc."""

from __future__ import annotations

import os
import re
import signal
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STARTED = 17  # place in /proc/PID/stat, counted from after the parent
_CPU = slice(9, 13)  # utime, stime, and both of ended children
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """One process; its start tells it from a later one with the same pid."""

    pid: int
    parent: int
    started: int
    cpu_ticks: int  # of it and of its children that have ended

    def is_alive(self) -> bool:
        now = _read(self.pid)
        return now is not None and now.started == self.started

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def tree(root: int) -> list[Process]:
    """A process and all its descendants; empty if there is no such process."""
    found = [process for pid in _pids() if (process := _read(pid)) is not None]
    children: dict[int, list[Process]] = defaultdict(list)
    for process in found:
        children[process.parent].append(process)
    members = [process for process in found if process.pid == root]
    for process in members:  # grows while it is walked
        members += children[process.pid]
    return members


def memory_bytes(root: int) -> int:
    """Memory of a process tree; what several share is counted once."""
    return sum(_pss_bytes(process.pid) for process in tree(root))


def cpu_seconds(root: int) -> float:
    """Processor time of a process tree."""
    return sum(process.cpu_ticks for process in tree(root)) / os.sysconf("SC_CLK_TCK")


def _pss_bytes(pid: int) -> int:
    text = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii")
    found = _PSS.search(text)
    return int(found[1]) * 1024 if found else 0


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _read(pid: int) -> Process | None:
    """None if it is gone, or dead and only waits to be reaped."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name before the last parenthesis may contain anything.
    state, parent, *rest = text.rpartition(")")[2].split()
    if state in "ZX":
        return None
    numbers = list(map(int, rest))
    return Process(pid, int(parent), numbers[_STARTED], sum(numbers[_CPU]))
