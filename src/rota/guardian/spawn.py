"""Starting a process: the right directory, descriptors, limits and signals, and nothing else."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from rota.guardian import processes
from rota.guardian.trees import Tree

_ALL_SIGNALS = tuple(signal.valid_signals())
_HIGHEST_CORE_LIMIT = 1 << 60
_LOWEST_CORE_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Command:
    """Program to execute, and what it is given."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    descriptors: Mapping[int, int]  # number in the new process → ours; 1 and 2 default to ours


class Refused(Exception):
    """A process that was asked for is not started."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number  # of the error, as in `errno`
        self.reason = reason


class Spawner:
    """Starts main processes, each with traits of its own that its descendants inherit.

    The hard limit on core files is one of them: unlike the environment it also survives `env -i`.
    Counting down never needs a privilege. The soft limit is zero: jobs leave no core files.
    """

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._core_limit = _highest_core_limit()
        self._has_room = self._core_limit > _LOWEST_CORE_LIMIT

    def spawn(self, key: str, command: Command) -> Tree:
        """Raises `Refused` when the program cannot be executed."""
        marker = os.urandom(8).hex()
        self._core_limit -= self._has_room
        resource.setrlimit(resource.RLIMIT_CORE, (0, self._core_limit))
        pid = self._execute(command, {**command.env, processes.MARKER_VARIABLE: marker})
        traits = [processes.session(pid), processes.marker(marker)]
        if self._has_room:
            traits.append(processes.core_limit(self._core_limit))
        return Tree(key, pid, tuple(traits))

    def _execute(self, command: Command, env: Mapping[str, str]) -> int:
        try:
            os.chdir(command.cwd)
        except (OSError, ValueError) as error:
            raise _refusal(f"enter the directory {command.cwd!r}", error) from error
        try:
            return self._posix_spawn(command, env)
        except (OSError, ValueError) as error:
            raise _refusal(f"execute {command.argv[0]!r}", error) from error
        finally:
            os.chdir("/")  # the guardian must not keep the file system of a job busy

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
