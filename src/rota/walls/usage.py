"""Usage of a container: by its cgroup where the worker sees it, else by its engine.

Only the cgroup knows the most memory that was taken (Podman does not tell) and whether the kernel
killed something for it (engines tell that of first processes only).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rota.walls.engine import ContainerEngine, Usage

CGROUPS = Path("/sys/fs/cgroup")
_ID_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Group:
    """Folders of a container's cgroup: of version 2 the same one twice."""

    memory: Path
    cpu: Path

    def out_of_memory(self) -> int:
        """Return how often the kernel killed something of it for memory."""
        for name in ("memory.events", "memory.oom_control"):
            for line in _read(self.memory / name).splitlines():
                key, _, count = line.partition(" ")
                if key == "oom_kill" and count.isdecimal():
                    return int(count)
        return 0

    def most_memory(self) -> int:
        """Return bytes; 0: the kernel does not tell."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if (text := _read(self.memory / name)).isdecimal():
                return int(text)
        return 0

    def cpu_seconds(self) -> float | None:
        if (text := _read(self.cpu / "cpuacct.usage")).isdecimal():
            return int(text) / 1e9
        for line in _read(self.cpu / "cpu.stat").splitlines():
            key, _, count = line.partition(" ")
            if key == "usage_usec" and count.isdecimal():
                return int(count) / 1e6
        return None


def find_group(container_id: str, top: Path = CGROUPS) -> Group | None:
    """Find the cgroup of a container by its full id, which engines put into the group's name."""
    if len(container_id) < _ID_CHARACTERS:
        return None
    if (top / "cgroup.controllers").exists():
        folder = _find(container_id, top)
        return None if folder is None else Group(folder, folder)
    memory, cpu = (_find(container_id, top / name) for name in ("memory", "cpuacct"))
    return None if memory is None or cpu is None else Group(memory, cpu)


def _find(container_id: str, top: Path) -> Path | None:
    # With systemd or not, root's engines have a container's group in one of their own.
    return next(_named(container_id, top, depth=1), None)


def _named(container_id: str, top: Path, depth: int) -> Iterator[Path]:
    """Find the groups of a container so many levels below others, while these come and go."""
    with suppress(OSError):
        for entry in list(os.scandir(top)):
            if container_id in entry.name:
                yield Path(entry.path)
            elif depth and entry.is_dir(follow_symlinks=False):
                yield from _named(container_id, Path(entry.path), depth - 1)


def discard_groups(container_id: str, top: Path = CGROUPS) -> None:
    """Remove what an engine that was killed left of the cgroups of a container that is gone.

    The kernel refuses where there still is a process; whoever is not root may not.
    """
    if len(container_id) < _ID_CHARACTERS:
        return
    for folder in _named(container_id, top, depth=2):  # of version 1 each resource has a tree
        with suppress(OSError):
            folder.rmdir()


class Meter:
    """Measures one container, while it is there."""

    def __init__(self, engine: ContainerEngine, name: str, container_id: str) -> None:
        self._engine = engine
        self._name = name
        self._group = find_group(container_id)
        self.latest = Usage()

    async def read(self) -> Usage:
        """Return what was taken so far, and the most memory that was seen."""
        told = self._read_group() or await self._engine.usage(self._name)
        most = max(self.latest.memory_bytes, told.memory_bytes)
        self.latest = replace(told, memory_bytes=most)
        return self.latest

    def _read_group(self) -> Usage | None:
        if self._group is None:
            return None
        cpu, most = self._group.cpu_seconds(), self._group.most_memory()
        return Usage(cpu, most) if cpu is not None and most else None

    def out_of_memory(self) -> int | None:
        """Return how often the kernel killed something for memory; None: it cannot be seen."""
        return None if self._group is None else self._group.out_of_memory()


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
