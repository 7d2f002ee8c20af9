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
_MOST_LOOKED_AT = 5_000  # processes: a fifth of a second, or two
_START_TIME = 19  # its place in /proc/PID/stat after the name
_CORE_LIMIT_LINE = "Max core file size"
_MARKER_PREFIX = MARKER_VARIABLE.encode() + b"="

Trait = tuple[str, int | str]  # something that the processes of one tree inherit, and no others


def session(pid: int) -> Trait:
    return ("session", pid)


def core_limit(hard: int) -> Trait:
    return ("core limit", hard)


def marker(value: str) -> Trait:
    return ("marker", value)


def group(name: str) -> Trait:
    return ("group", name)


def traits(pid: int) -> Iterator[Trait]:
    """Lists what this process inherited, the cheapest to find out first."""
    for find in (_session, _core_limit, _groups, _markers):
        # It may have ended, or be another user's: then another trait may still be readable.
        with contextlib.suppress(OSError, ValueError):
            yield from find(pid)


def _session(pid: int) -> Iterator[Trait]:
    yield session(os.getsid(pid))


def _core_limit(pid: int) -> Iterator[Trait]:
    try:
        yield core_limit(resource.prlimit(pid, resource.RLIMIT_CORE)[1])
    except PermissionError:  # another user's, which takes a capability that root may lack
        with open(f"/proc/{pid}/limits") as file:
            [line] = [line for line in file if line.startswith(_CORE_LIMIT_LINE)]
        yield core_limit(int(line.split()[-2]))


def _groups(pid: int) -> Iterator[Trait]:
    """Yields the names of its control groups, the last parts of their paths."""
    with open(f"/proc/{pid}/cgroup") as file:
        for line in file:
            yield group(line.rstrip("\n").rpartition("/")[2])


def _markers(pid: int) -> Iterator[Trait]:
    yield from map(marker, markers(pid))


def markers(pid: int | str) -> list[str]:
    """Values of the marker in the environment that this process was started with."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        entries = file.read().split(b"\0")
    prefix = _MARKER_PREFIX
    return [os.fsdecode(each.removeprefix(prefix)) for each in entries if each.startswith(prefix)]


def marked(prefix: str) -> list[int]:
    """All processes that anybody may see with a marker that begins so, but for our ancestors."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if any(each.startswith(prefix) for each in markers(name)):
                found.append(int(name))
    return [pid for pid in found if pid not in ancestors()]


def ancestors() -> list[int]:
    """This process, its parent, and so on as far as can be seen."""
    found = [os.getpid()]
    with contextlib.suppress(OSError):
        while parent := status_numbers(found[-1], "PPid")[0]:
            found.append(parent)
    return found


def family() -> set[int]:
    """Those that this process was started by, and all that its parent started."""
    return {*ancestors(), os.getppid(), *descendants(os.getppid())}


def status_numbers(pid: int, name: str, base: int = 10) -> list[int]:
    """Numbers of a line in the kernel's status of this process."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return [int(word, base) for word in line.split()[1:]]
    return []


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
    """The processes below this one, each after its parent; of very many only the first.

    The guardian has one thread: while it looks at a hundred thousand it does not answer the worker,
    who would give it up. What is to die is not looked for here, so nothing of it gets away.
    """
    found = _children(pid)
    for descendant in found:
        if len(found) >= _MOST_LOOKED_AT:
            return found[:_MOST_LOOKED_AT]
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


def signal_inside(tops: Iterable[int], number: int) -> bool:
    """Signals what lives in a deeper pid namespace than we; whether anything there can notice.

    The monitors of a sandbox, beside its namespace, would take TERM for an order to kill it. The
    first process in it does not notice a signal for which it has no handler: its init is no job.
    """
    ours = len(status_numbers(os.getpid(), "NSpid"))
    is_noticed = False
    for pid in [each for top in tops for each in (top, *descendants(top))]:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, PermissionError):
            numbers = status_numbers(pid, "NSpid")
            if len(numbers) > ours:
                os.kill(pid, number)
                is_noticed |= numbers[-1] != 1 or _handles(pid, number)
    return is_noticed


def _handles(pid: int, number: int) -> bool:
    return bool(status_numbers(pid, "SigCgt", 16)[0] >> (number - 1) & 1)


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


def kill_all(spared: int | None = None) -> None:
    """Kills everything below this process but one child; returns when nothing of it is left."""
    children = OwnChildren()
    while pids := [pid for pid in children.pids() if pid != spared]:
        kill_tops(pids)
        _reap_some()


def kill_below(anchor: int, spared: int | None = None) -> bool:
    """Kills what lives below a process that is not ours; whether nothing of it is left.

    To be repeated, since what loses its parent comes back below the nearest subreaper. Its zombies
    stay until the anchor reaps them, or ends.
    """
    living = [pid for pid in _children(anchor) if pid != spared and is_alive(pid)]
    groups = {pid: _group_or_self(pid) for pid in living}
    anchors = _group_or_self(anchor)
    kill_each({pid if group == anchors else group for pid, group in groups.items()})
    return not living


def kill_each(pids: Iterable[int]) -> None:
    """Kills these; a negative one stands for a group."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def began(pid: int) -> float:
    """When it was started, as a boottime."""
    return int(_stat(pid)[_START_TIME]) / os.sysconf("SC_CLK_TCK")


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return _stat(pid)[0] not in (b"Z", b"X")
    return False


def _stat(pid: int) -> list[bytes]:
    """What the kernel tells about it, after its name."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _reap_some() -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
