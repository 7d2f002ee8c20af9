"""Reading and signalling the processes below this one.

Pids read from /proc are used at once. The kernel hands pids out in a cycle, so one that was seen
a moment ago cannot yet stand for another process; one that is our own unreaped child never can.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterable, Iterator

MARKER_VARIABLE = "ROTA_GUARD_KEY"
_MARKER_PREFIX = MARKER_VARIABLE.encode() + b"="

Trait = tuple[str, int | str]  # something that the processes of one tree inherit, and no others


def session(pid: int) -> Trait:
    return ("session", pid)


def core_limit(hard: int) -> Trait:
    return ("core limit", hard)


def marker(value: str) -> Trait:
    return ("marker", value)


def traits(pid: int) -> Iterator[Trait]:
    """Lists what this process inherited, the cheapest to find out first."""
    try:
        yield session(os.getsid(pid))
        yield core_limit(resource.prlimit(pid, resource.RLIMIT_CORE)[1])
        yield from _markers(pid)
    except (ProcessLookupError, PermissionError, FileNotFoundError):
        return


def _markers(pid: int) -> Iterator[Trait]:
    with open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(_MARKER_PREFIX):
                yield marker(os.fsdecode(entry.removeprefix(_MARKER_PREFIX)))


def is_supported() -> bool:
    return os.path.exists(_children_file(os.getpid(), os.getpid()))


def _children_file(pid: int, thread: int | str) -> str:
    return f"/proc/{pid}/task/{thread}/children"


class OwnChildren:
    """The children of this process, zombies included, those given to it by the kernel too."""

    def __init__(self) -> None:
        self._path = _children_file(os.getpid(), os.getpid())

    def count(self) -> int:
        return self._read().count(b" ")

    def pids(self) -> list[int]:
        return [int(pid) for pid in self._read().split()]

    def _read(self) -> bytes:
        with open(self._path, "rb", buffering=0) as file:
            return file.readall()


def descendants(pid: int) -> list[int]:
    """All processes below this one, each after its parent."""
    found = _children(pid)
    for descendant in found:
        found += _children(descendant)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(_children_file(pid, thread), "rb") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended meanwhile: its children are, or will be, someone else's
    return found


def signal_trees(tops: Iterable[int], number: int) -> None:
    """Signals these processes and all that live below them, each of them once."""
    _signal([pid for top in tops for pid in (top, *descendants(top))], number)


def kill_tops(tops: Iterable[int]) -> None:
    """Kills these children of ours; what lived below them is given to us, to be killed next.

    Not to look for it first is what keeps the killer faster than a job that forks all the time.
    """
    _signal(tops, signal.SIGKILL)


def _signal(pids: Iterable[int], number: int) -> None:
    for target in dict.fromkeys(map(_group_or_self, pids)):
        # It may be gone, or belong to another user: then only its own end can remove it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target, number)


def _group_or_self(pid: int) -> int:
    """Returns what `kill` calls the group of this process, or the process if the group is our own.

    A group is signalled in one step, which nobody can outrun by forking, and never spans two
    trees: the main process of each leads a session of its own.
    """
    try:
        group = os.getpgid(pid)
    except ProcessLookupError:
        return pid
    return pid if group == os.getpgrp() else -group


def kill_all() -> None:
    """Kills everything below this process and returns when nothing of it is left."""
    children = OwnChildren()
    while pids := children.pids():
        kill_tops(pids)
        _reap_some()


def _reap_some() -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
