"""Control groups: limits that hold, what was really used, and an end that nobody escapes.

    OWN/rota-NAME.LIFE/        OWN is the group that this process was started in
        worker/                version 2: the inner process, the worker and its plain processes
        TAG-NUMBER/            a confined process, in version 2 and in what it needs of version 1

Version 2 has one hierarchy, version 1 one for each controller; a hybrid machine limits by version 1
and still has the tree of version 2, whose groups can be killed whole. Groups of version 2 hand
controllers down only if no process is in them: those of OWN then move to OWN/rota-main. What the
machine does not permit is told as a reason, for each limit.

All groups of a life are removed at its end. What `kill -9` of everything left behind is found by
its NAME at the next start, and killed and removed then.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rota.guardian import processes
from rota.guardian.linux import boottime, fork_into, pause

CONTROLLERS: Mapping[str, str] = {"cpu": "cpu", "memory": "memory", "processes": "pids"}
_TRIAL_VALUES = {"cpu": 1_000, "memory": 1 << 30, "processes": 1_000}
_TREE = ""  # stands for the hierarchy of version 2 where others are named by their controller
_UNNAMED = "unnamed"  # and so not swept
_MAIN = "rota-main"
_WORKER = "worker"
_NAME_LENGTH = 100
_ROUNDS = 10  # to move processes that fork meanwhile
_CLEARING_SECONDS = 3.0  # a killed process needs a moment to leave its group

_CPU_PERIOD = 100_000  # microseconds
_LONG_CPU_PERIOD = 1_000_000  # so that a thousandth of a core is the least quota, one millisecond
_LEAST_CPU_OF_A_SHORT_PERIOD = 10  # thousandths
_NO_CLONE3 = (errno.ENOSYS, errno.EINVAL, errno.E2BIG)  # of a container, of an old kernel
_SWAP_FILES = ("memory.swap.max", "memory.memsw.limit_in_bytes")


class Place(NamedTuple):
    """A hierarchy, and the group of this process in it."""

    mount: str
    own: str


def places(mounts: str, memberships: str) -> dict[str, Place]:
    """Reads /proc/self/mountinfo and /proc/self/cgroup; by controller, "" for version 2."""
    paths: dict[str, str] = {}
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    found: dict[str, Place] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, _, options = after.split()
        mounted = {"cgroup": options.split(","), "cgroup2": [_TREE]}.get(kind, [])
        for controller in paths.keys() & mounted:
            if (own := _below(_unescaped(root), paths[controller])) is not None:
                mount = _unescaped(mount)
                found.setdefault(controller, Place(mount, os.path.join(mount, own).rstrip("/")))
    return found


def _below(root: str, path: str) -> str | None:
    """Part of the path below what is mounted; None when it is elsewhere."""
    if os.path.commonpath([root, path]) != root:
        return None
    return os.path.relpath(path, root) if path != root else ""


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def current_places() -> dict[str, Place]:
    with contextlib.suppress(OSError, ValueError):
        found = places(_read("/proc/self/mountinfo"), _read("/proc/self/cgroup"))
        return {key: found[key] for key in (_TREE, *CONTROLLERS.values()) if key in found}
    return {}


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a group; None: its hierarchies do not count that."""

    cpu_seconds: float | None
    max_memory_bytes: int | None
    cause: str  # limit that it ran into, however it ended; "" = none


class Group:
    """Group of one process tree, in each hierarchy that it needs."""

    def __init__(self, name: str, tree: str, folders: Mapping[str, str]) -> None:
        self.name = name
        self.tree = tree  # its folder in version 2; "" = none
        self._by_controller = folders
        self.folders = list(dict.fromkeys([*filter(None, [tree]), *folders.values()]))

    def folder(self, controller: str) -> str:
        return self._by_controller[controller]

    def fork(self) -> tuple[int, bool]:
        """Forks, at best into the tree; the child must `enter` and execute a program soon."""
        if self.tree:
            fd = os.open(self.tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return fork_into(fd), True
            except OSError as error:
                if error.errno not in _NO_CLONE3:
                    raise
            finally:
                os.close(fd)
        return os.fork(), False

    def enter(self, *, is_in_tree: bool) -> None:
        """Moves this process in, which must have a single thread and no child."""
        for folder in self.folders:
            if folder == self.tree:
                if not is_in_tree:
                    _write(f"{folder}/cgroup.procs", "0")
            else:
                _write(f"{folder}/tasks", "0")  # at once; by cgroup.procs it takes milliseconds

    @property
    def is_empty(self) -> bool:
        with contextlib.suppress(OSError):
            if self.tree:
                return "populated 0" in _read(f"{self.tree}/cgroup.events")
            return not any(map(_members, self.folders))
        return True  # it was removed by somebody

    def kill(self) -> None:
        for folder in self.folders:
            _kill_group(folder)

    def usage(self) -> Usage:
        return Usage(self._cpu_seconds(), self._max_memory(), self._cause())

    def _cpu_seconds(self) -> float | None:
        if not self.tree:
            return None
        used = _counters(f"{self.tree}/cpu.stat").get("usage_usec")
        return None if used is None else used / 1e6

    def _max_memory(self) -> int | None:
        folder = self._by_controller.get("memory", "")
        for name in ("peak", "memsw.max_usage_in_bytes", "max_usage_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                return int(_read(f"{folder}/memory.{name}"))
        return None

    def _cause(self) -> str:
        if memory := self._by_controller.get("memory"):
            for name in ("memory.events", "memory.oom_control"):
                if _counters(f"{memory}/{name}").get("oom_kill"):
                    return "oom"
        pids = self._by_controller.get("pids")
        if pids and _counters(f"{pids}/pids.events").get("max"):
            return "processes"
        return ""

    def remove(self) -> bool:
        """Whether it is gone; not while there is a process in it."""
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                try:
                    os.rmdir(folder)
                except OSError:
                    return False
        return True


class Cgroups:
    """Groups of one life of a guardian: made by the outer process, used by the inner one."""

    def __init__(self, name: str) -> None:
        self.life = f"{_prefix(name or _UNNAMED)}{os.urandom(4).hex()}"
        self._folders: dict[str, str] = {}  # of this life, by controller
        self._reasons: dict[str, str] = {}  # why there is none, by controller
        self._numbers = itertools.count(1)
        self._left: list[Group] = []  # to be removed, but not empty yet
        self._prepare(current_places())
        self.offers = {limit: self._try(limit) for limit in CONTROLLERS}

    @property
    def tree(self) -> str:
        """Folder of this life in version 2; "" = none."""
        return self._folders.get(_TREE, "")

    def _prepare(self, own: Mapping[str, Place]) -> None:
        for key, place in own.items():
            base = _base(place.own) if key == _TREE else place.own
            try:
                folder = _made(f"{base}/{self.life}")
                if key == _TREE:
                    _rehearse(Group(_WORKER, _made(f"{folder}/{_WORKER}"), {}))
                self._folders[key] = folder
            except OSError as error:
                self._reasons[key] = _explained(error, f"make a control group in {base}")
        for controller in CONTROLLERS.values():
            if controller not in own:
                self._take_from_tree(controller)

    def _take_from_tree(self, controller: str) -> None:
        if not self.tree:
            none = f"this system has no control groups with the controller {controller}"
            self._reasons[controller] = self._reasons.get(_TREE, none)
            return
        base = os.path.dirname(self.tree)
        try:
            _hand_down(base, controller)
            _hand_down(self.tree, controller)
            self._folders[controller] = self.tree
        except OSError as error:
            self._reasons[controller] = _explained(error, f"use {controller} of {base}")

    def _try(self, limit: str) -> str:
        """Why this limit cannot be had; "" when a group for trial has it."""
        try:
            if group := self.make({limit: _TRIAL_VALUES[limit]}, "trial"):
                try:
                    _rehearse(group)
                finally:
                    self.discard(group)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def enter(self) -> None:
        """Moves this process, the inner one: all that it starts is below it, or confined."""
        if self.tree:
            _write(f"{self.tree}/{_WORKER}/cgroup.procs", "0")

    def make(self, limits: Mapping[str, int], tag: str) -> Group | None:
        """A group with these limits; None where nothing is to be limited or could be.

        `OSError` when a limit cannot be had: nothing ever runs with less.
        """
        wanted = {CONTROLLERS[limit]: limits[limit] for limit in CONTROLLERS if limit in limits}
        for controller in wanted:
            if controller not in self._folders:
                raise OSError(errno.ENOTSUP, self._reasons[controller])
        if not wanted and not self.tree:
            return None
        name = f"{cleaned(tag) or 'job'}-{next(self._numbers)}"
        tree = self.tree and f"{self.tree}/{name}"
        group = Group(name, tree, {each: f"{self._folders[each]}/{name}" for each in wanted})
        try:
            self._furnish(group, wanted)
        except OSError:
            self.discard(group)
            raise
        return group

    def _furnish(self, group: Group, wanted: Mapping[str, int]) -> None:
        for folder in group.folders:
            _made(folder)
        for controller, value in wanted.items():
            folder = group.folder(controller)
            _limit(folder, controller, value, is_version_2=folder == group.tree)

    def discard(self, group: Group) -> None:
        """Removes it, at the next chance if there is still a process in it."""
        self._left = [each for each in (*self._left, group) if not each.remove()]

    def kill(self) -> None:
        """Kills every process of this life, the inner one included, where there is version 2."""
        if self.tree:
            _kill_below(self.tree)

    def remove(self) -> None:
        """Kills what is left of this life, and removes its groups."""
        for folder in set(self._folders.values()):
            clear(folder)


def _rehearse(group: Group) -> None:
    """Lets a child enter the group; `OSError` if it may not."""
    pid, is_in_tree = group.fork()
    if pid == 0:
        try:
            group.enter(is_in_tree=is_in_tree)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or errno.EINVAL)
    if number := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(number, f"no process may enter it: {os.strerror(number)}")


def sweep(name: str) -> None:
    """Kills what earlier lives of this name left, in all hierarchies and elsewhere."""
    prefix = _prefix(name)
    own = current_places()
    for mount in {place.mount for place in own.values()}:
        for folder, below, _ in os.walk(mount):
            found = [each for each in below if each.startswith(prefix)]
            below[:] = [each for each in below if each not in found]
            for leftover in (f"{folder}/{each}" for each in found):
                if not any(_is_below(place.own, leftover) for place in own.values()):
                    clear(leftover)
    end = boottime() + _CLEARING_SECONDS
    while (pids := processes.marked(prefix)) and boottime() < end:
        processes.kill_each(pids)
        pause(0.002)


def _prefix(name: str) -> str:
    """Of the names of all lives of this name, and of no other's: it has no dot."""
    return f"rota-{cleaned(name)}."


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def clear(folder: str) -> bool:
    """Kills what is in a group and below it, and removes them; whether that was possible."""
    end = boottime() + _CLEARING_SECONDS
    while os.path.isdir(folder):
        _kill_below(folder)
        for group in _groups_below(folder):
            with contextlib.suppress(OSError):
                os.rmdir(group)
        if boottime() > end:
            return False
        pause(0.002)
    return True


def _groups_below(folder: str) -> Iterator[str]:
    """All groups, each before its parent."""
    return (group for group, _, _ in os.walk(folder, topdown=False))


def _kill_below(folder: str) -> None:
    if not _is_killed_whole(folder):
        for group in _groups_below(folder):
            _kill_members(group)


def _kill_group(folder: str) -> None:
    if not _is_killed_whole(folder):
        _kill_members(folder)


def _is_killed_whole(folder: str) -> bool:
    try:
        _write(f"{folder}/cgroup.kill", "1")
    except OSError:  # version 1, or a kernel before 5.14
        return False
    return True


def _kill_members(folder: str) -> None:
    with contextlib.suppress(OSError):
        processes.kill_each(_members(folder))


def _members(folder: str) -> list[int]:
    """Pids as this process sees them: those out of its sight read as 0."""
    return [pid for pid in map(int, _read(f"{folder}/cgroup.procs").split()) if pid]


def _limit(folder: str, controller: str, value: int, *, is_version_2: bool) -> None:
    for name, text in _settings(controller, value, is_version_2=is_version_2):
        try:
            _write(f"{folder}/{name}", text)
        except FileNotFoundError:
            if name not in _SWAP_FILES:
                raise
            if _has_swap():
                told = "this kernel does not count swap (boot it with swapaccount=1)"
                raise OSError(errno.ENOTSUP, told) from None
        except OSError as error:
            # A group of version 1 may not have more than its parent: less is what it gets then.
            if (name, error.errno) != ("cpu.cfs_quota_us", errno.EINVAL):
                raise


def _settings(controller: str, value: int, *, is_version_2: bool) -> list[tuple[str, str]]:
    if controller == "memory":
        if is_version_2:
            return [("memory.max", str(value)), ("memory.swap.max", "0")]
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        return [(name, str(value)) for name in names]
    if controller == "pids":
        return [("pids.max", str(value))]
    period = _CPU_PERIOD if value >= _LEAST_CPU_OF_A_SHORT_PERIOD else _LONG_CPU_PERIOD
    quota = max(1, value) * period // 1_000
    if is_version_2:
        return [("cpu.max", f"{quota} {period}")]
    return [("cpu.cfs_period_us", str(period)), ("cpu.cfs_quota_us", str(quota))]


def _has_swap() -> bool:
    return len(_read("/proc/swaps").splitlines()) > 1


def _base(own: str) -> str:
    """The group to make ours in; not where an earlier life has moved this process to."""
    return os.path.dirname(own) if os.path.basename(own) == _MAIN else own


def _hand_down(folder: str, controller: str) -> None:
    """Gives the groups in this one of version 2 a controller."""
    if controller not in _read(f"{folder}/cgroup.controllers").split():
        raise OSError(errno.ENOTSUP, "that group was not given it itself")
    if controller not in _read(f"{folder}/cgroup.subtree_control").split():
        if not _is_root(folder):
            # Before: with processes in it, some controllers make it a group for threads only.
            _make_room(folder)
        _write(f"{folder}/cgroup.subtree_control", f"+{controller}")


def _make_room(folder: str) -> None:
    """Moves the processes of a group into one below it."""
    for _ in range(_ROUNDS):
        pids = [int(pid) for pid in _read(f"{folder}/cgroup.procs").split()]
        if not pids:
            return
        if not _is_delegated(folder) and not processes.family().issuperset(pids):
            told = "other processes are in it: start Rota in a unit of its own with Delegate=yes"
            raise OSError(errno.EBUSY, told)
        _made(f"{folder}/{_MAIN}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                _write(f"{folder}/{_MAIN}/cgroup.procs", str(pid))


def _is_root(folder: str) -> bool:
    """Whether it is the real root, in which processes may be beside groups."""
    return not os.path.exists(f"{folder}/cgroup.type")


def _is_delegated(folder: str) -> bool:
    """Whether whoever manages this machine leaves what happens in this group to us."""
    for attribute in ("user.delegate", "trusted.delegate"):  # of systemd
        with contextlib.suppress(OSError):
            if os.getxattr(folder, attribute) == b"1":
                return True
    return os.path.ismount(folder) or os.stat(folder).st_uid == os.geteuid() != 0


def cleaned(name: str) -> str:
    """A name that can be part of a group's."""
    return re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:_NAME_LENGTH]


def _explained(error: OSError, doing: str) -> str:
    reason = f"cannot {doing}: {error.strerror}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason += " (the worker must be root, or its control group be delegated to its user)"
    return reason


def _made(folder: str) -> str:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o755)
    return folder


def _counters(path: str) -> dict[str, int]:
    """Lines of a name and a number; empty when there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        pairs: Iterable[list[str]] = map(str.split, _read(path).splitlines())
        return {name: int(value) for name, value in pairs}
    return {}


def _read(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return os.fsdecode(file.readall())


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
