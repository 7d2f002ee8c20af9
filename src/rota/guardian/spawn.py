"""Starting a process: the right directory, descriptors, limits and signals, and nothing else.

Most are simply ours, and started by one call of the C library. One that is confined is forked, and
confines itself before it executes its program: as another user, in control groups of its own. What
goes wrong there is read from a pipe when the process has ended, so that nobody waits for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from rota.guardian import linux, processes
from rota.guardian.cgroups import Cgroups, Group
from rota.guardian.network import Namespace, furnish
from rota.guardian.trees import Tree

_ALL_SIGNALS = tuple(signal.valid_signals())
_HIGHEST_CORE_LIMIT = 1 << 60
_LOWEST_CORE_LIMIT = 1 << 40
_NOT_EXECUTED = 127


@dataclass(frozen=True, slots=True)
class Confinement:
    """Rights and limits that a process has less than the guardian."""

    uid: int | None = None  # None: ours; otherwise nothing it executes gains a privilege
    gid: int | None = None  # None: ours
    groups: tuple[int, ...] = ()  # supplementary, where there is a uid or gid
    limits: Mapping[str, int] = field(default_factory=dict)  # cpu in thousandths, memory in bytes,
    # processes, open_files
    is_signalled_inside: bool = False  # signals but KILL are for deeper pid namespaces only
    tag: str = ""  # for people who look at control groups
    network: Namespace | None = None  # to be made ready; it then dies with the guardian


@dataclass(frozen=True, slots=True)
class Command:
    """Program to execute, and what it is given."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    descriptors: Mapping[int, int]  # number in the new process → ours; 1 and 2 default to ours
    confinement: Confinement | None = None


class Refused(Exception):
    """A process that was asked for is not started."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number  # of the error, as in `errno`
        self.reason = reason


def refusal_of(tree: Tree) -> Refused | None:
    """Reads why a process that has ended never executed its program; None: it did."""
    number, _, reason = tree.take_report().partition(" ")
    return Refused(int(number), reason) if number else None


class Spawner:
    """Starts main processes, each with traits of its own that its descendants inherit.

    The hard limit on core files is one of them: unlike the environment it also survives `env -i`.
    Counting down never needs a privilege. The soft limit is zero: jobs leave no core files.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._core_limit = _highest_core_limit()
        self._has_room = self._core_limit > _LOWEST_CORE_LIMIT

    def spawn(self, key: str, command: Command) -> Tree:
        """Raises `Refused` when the program cannot be executed."""
        marker = f"{self._cgroups.life}/{os.urandom(8).hex()}"
        self._core_limit -= self._has_room
        resource.setrlimit(resource.RLIMIT_CORE, (0, self._core_limit))
        env = {**command.env, processes.MARKER_VARIABLE: marker}
        if command.confinement is not None:
            return self._spawn_confined(key, command, command.confinement, env, marker)
        pid = _execute(command, lambda: self._posix_spawn(command, env))
        return Tree(key, pid, self._traits(pid, marker))

    def _traits(self, pid: int, marker: str) -> tuple[processes.Trait, ...]:
        traits = (processes.session(pid), processes.marker(marker))
        return (*traits, processes.core_limit(self._core_limit)) if self._has_room else traits

    def _posix_spawn(self, command: Command, env: Mapping[str, str]) -> int:
        descriptors = {0: self._null, **command.descriptors}
        return os.posix_spawn(
            _find_program(command.argv[0], env),
            command.argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, new) for new, fd in descriptors.items()],
            setsid=True,
            setsigmask=(),
            setsigdef=_ALL_SIGNALS,
        )

    def _spawn_confined(
        self,
        key: str,
        command: Command,
        confinement: Confinement,
        env: Mapping[str, str],
        marker: str,
    ) -> Tree:
        group = self._group_for(confinement)
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            child = _Child(command, confinement, group, env, self._null, write)
            pid = child.fork()
        except OSError as error:
            os.close(read)
            if group is not None:
                self._cgroups.discard(group)
            raise _refusal("start a process", error) from error
        finally:
            os.close(write)
        traits = self._traits(pid, marker)
        if group is not None:
            traits = (*traits, processes.group(group.name))
        tree = Tree(key, pid, traits, group=group, report=read)
        tree.is_signalled_inside = confinement.is_signalled_inside
        return tree

    def forget(self, tree: Tree) -> None:
        """Removes what was made for a tree that is wholly gone."""
        if tree.group is not None:
            self._cgroups.discard(tree.group)

    def _group_for(self, confinement: Confinement) -> Group | None:
        try:
            return self._cgroups.make(confinement.limits, confinement.tag)
        except OSError as error:
            raise _refusal("limit what it may take", error) from error


@dataclass(frozen=True, slots=True)
class _Child:
    """A process that confines itself, and then executes a program."""

    command: Command
    confinement: Confinement
    group: Group | None
    env: Mapping[str, str]
    null: int
    report: int  # write end of a pipe that closes when all went well

    def fork(self) -> int:
        # A signal before the exec would reach handlers that write into a pipe of the guardian.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
        try:
            pid, is_in_tree = (os.fork(), False) if self.group is None else self.group.fork()
            if pid == 0:
                self._become(is_in_tree=is_in_tree)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _become(self, *, is_in_tree: bool) -> NoReturn:
        """Never returns, whatever happens: there is but one guardian.

        It enters its directory as the user who it becomes, and looks for its program there: we may
        be root, and could enter where that user may not, who then would be inside.
        """
        report, doing = self.report, "begin"
        try:
            descriptors = {0: self.null, **self.command.descriptors}
            free = max(descriptors) + 1
            report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, free)
            os.setsid()
            doing = "enter its control groups"
            self._enter(is_in_tree=is_in_tree)
            doing = "take its descriptors"
            _take(descriptors, free)
            doing = "limit its open files"
            self._limit_files()
            if self.confinement.network is not None:
                doing = "make its network"
                furnish(self.confinement.network, self.confinement.uid)
            doing = f"become user {self.confinement.uid}"
            self._drop()
            doing = f"enter the directory {self.command.cwd!r}"
            os.chdir(self.command.cwd)
            doing = f"execute {self.command.argv[0]!r}"
            program = _find_program(self.command.argv[0], self.env)
            if self.confinement.network is not None:
                linux.die_with_parent()  # after the users were changed, which clears it
            _reset_signals()
            os.execve(program, self.command.argv, self.env)  # noqa: S606 – no shell is wanted
        except (OSError, ValueError) as error:
            refusal = _refusal(doing, error)
            os.write(report, f"{refusal.number} {refusal.reason}".encode(errors="replace"))
        finally:
            os._exit(_NOT_EXECUTED)

    def _enter(self, *, is_in_tree: bool) -> None:
        if self.group is not None:
            self.group.enter(is_in_tree=is_in_tree)

    def _limit_files(self) -> None:
        if wanted := self.confinement.limits.get("open_files"):
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def _drop(self) -> None:
        uid, gid = self.confinement.uid, self.confinement.gid
        if gid is not None:
            os.setgroups(self.confinement.groups)
            os.setresgid(gid, gid, gid)
        if uid is not None:
            os.setresuid(uid, uid, uid)
            linux.gain_nothing_by_exec()


def _take(descriptors: Mapping[int, int], free: int) -> None:
    """Gives descriptors their numbers; first all get out of the way of one another."""
    moved = {new: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, free) for new, fd in descriptors.items()}
    for new, fd in moved.items():
        os.dup2(fd, new, inheritable=True)


def _reset_signals() -> None:
    for number in _ALL_SIGNALS:
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(command: Command, start: Callable[[], int]) -> int:
    try:
        os.chdir(command.cwd)
    except (OSError, ValueError) as error:
        raise _refusal(f"enter the directory {command.cwd!r}", error) from error
    try:
        return start()
    except (OSError, ValueError) as error:
        raise _refusal(f"execute {command.argv[0]!r}", error) from error
    finally:
        os.chdir("/")  # the guardian must not keep the file system of a job busy


def _highest_core_limit() -> int:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, _HIGHEST_CORE_LIMIT))
    except ValueError:  # somebody set a lower one, which only root may raise
        return resource.getrlimit(resource.RLIMIT_CORE)[1]
    return _HIGHEST_CORE_LIMIT


def _refusal(doing: str, error: OSError | ValueError) -> Refused:
    if isinstance(error, OSError):
        return Refused(error.errno or errno.EINVAL, f"cannot {doing}: {error.strerror}")
    # A zero byte or a lone surrogate, "=" in a variable's name.
    return Refused(errno.EINVAL, f"cannot {doing}: {error}")


def _find_program(name: str, env: Mapping[str, str]) -> str:
    """Looks along the PATH of the new process, not along ours as posix_spawnp would."""
    if "/" in name:
        return name
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    candidates = [os.path.join(folder, name) for folder in folders]
    for path in candidates:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    if any(os.path.exists(path) for path in candidates):
        raise PermissionError(errno.EACCES, "that on the PATH is not executable")
    raise FileNotFoundError(errno.ENOENT, "no such program on the PATH")
