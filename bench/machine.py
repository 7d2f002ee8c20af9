"""The machine: what it is, and how much of it others use."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import processes

QUIET_CORES = 0.2  # what others may use without disturbing a measurement

_INSTALLER = Path(__file__).parents[1] / "tools" / "system_packages.py"
_LOOK_SECONDS = 0.5
_IDLE_COLUMNS = slice(3, 5)  # of the first line of /proc/stat: idle, iowait
_ALL_COLUMNS = slice(0, 8)  # those after it are contained in user and nice
_own_servers: list[Callable[[], int | None]] = []


@dataclass(frozen=True, slots=True)
class CpuReading:
    """Processor time since boot, in seconds over all cores."""

    total: float
    busy: float
    own: float  # of this process, its ended descendants, and servers that were declared own


def facts() -> dict[str, str | int]:
    """What a reader must know to compare the figures with others."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count() or 0,
        "processor": _processor(),
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def install(*commands: str) -> bool:
    """Whether these commands are there now: where they are missing, root gets them from Debian."""
    subprocess.run([sys.executable, _INSTALLER, *commands], check=True)
    return all(map(shutil.which, commands))


def read_cpu() -> CpuReading:
    first_line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(word) for word in first_line.split()[1:]]
    total, idle = sum(ticks[_ALL_COLUMNS]), sum(ticks[_IDLE_COLUMNS])
    frequency = os.sysconf("SC_CLK_TCK")
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    pids = [pid for server in _own_servers if (pid := server()) is not None]
    own += sum(map(processes.cpu_seconds, pids))
    return CpuReading(total / frequency, (total - idle) / frequency, own)


@contextmanager
def counted_as_own(pid: Callable[[], int | None]) -> Iterator[None]:
    """What a server that is nobody's child works, and all its processes, is no foreign load.

    Its pid is asked for at each reading, as it may be restarted; None: it does not run.
    """
    _own_servers.append(pid)
    try:
        yield
    finally:
        _own_servers.remove(pid)


def foreign_cores(before: CpuReading, after: CpuReading) -> float:
    """How many cores went to processes not started here, on average."""
    passed = (after.total - before.total) / (os.cpu_count() or 1)
    foreign = (after.busy - before.busy) - (after.own - before.own)
    return max(foreign, 0.0) / passed if passed else 0.0


def look_around() -> float:
    """How many cores others use, seen for half a second in which nothing is measured."""
    before = read_cpu()
    time.sleep(_LOOK_SECONDS)
    return foreign_cores(before, read_cpu())


def wait_until_quiet(limit_seconds: float) -> float:
    """Wait, not for ever, until others leave the machine alone; how many cores they use then."""
    end = time.monotonic() + limit_seconds
    while (used := look_around()) > QUIET_CORES and time.monotonic() < end:
        pass
    return used


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
