"""What the worker of this machine offers to runs, where its settings do not say it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from rota.domain.resources import UNIT

_ROOT = Path("/")
_MEBIBYTE = 1024 * 1024
_CGROUPS = Path("sys/fs/cgroup")


def offered(declared: Mapping[str, int], root: Path = _ROOT) -> dict[str, int]:
    """Thousandths by name: what was declared, and else the cores and memory it may use."""
    groups = list(_groups(root))
    return {"cpu": _cpu(groups), "memory": _memory(groups) * UNIT, **declared}


def _cpu(groups: list[Path]) -> int:
    """Thousandths of a core."""
    cores = [len(os.sched_getaffinity(0)) * UNIT]
    for group in groups:
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            cores.append(int(quota) * UNIT // int(period))
    return min(cores)


def _memory(groups: list[Path]) -> int:
    """Bytes, of whole MiB: nobody wants to read more of it."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for group in groups:
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _read(group / name)
            if limit.isdecimal():
                sizes.append(int(limit))
    return min(sizes) // _MEBIBYTE * _MEBIBYTE


def _groups(root: Path) -> Iterator[Path]:
    """The control groups that this process is in, of version 2 or 1, and all above them."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or controllers == "memory":
            top = root / _CGROUPS / controllers
            own = top / path.lstrip("/")
            yield from (group for group in (own, *own.parents) if group.is_relative_to(top))


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
