"""Containers that must not outlive the lease, and their end, through their engine and without it.

They are children of an engine, not ours. Their first process is killed by its pid where that is
known and may be killed: whatever the engine does, and the kernel kills the rest of it. Then the
engine is asked to remove them until it says that they are gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.guardian import processes
from rota.guardian.linux import boottime

_ANSWER_SECONDS = 30.0  # that an engine may take to remove a container
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # between two requests for the same one
_TURN_SECONDS = 0.05
_REMOVED, _UNKNOWN = 204, 404
_CLOCK_TICK = 0.02  # seconds: the kernel notes the begin of a process in hundredths
_MAX_ANSWER = 1 << 16


@dataclass(frozen=True, slots=True)
class Container:
    """A container that must not outlive the lease."""

    engine: str  # path of the API socket
    name: str
    noted_at: float  # boottime; its first process cannot be older
    pid: int = 0  # of its first process, as seen from outside; 0: not known


class Ending:
    """The end of containers, all at the same time.

    Without threads: the outer process, which has left its pid namespace, cannot start one.
    """

    def __init__(self, containers: Iterable[Container], first: Mapping[str, int]) -> None:
        self._removals = [Removal(each) for each in containers]
        self._first = first  # pidfds of first processes, by name, as far as they are open

    def begin(self) -> None:
        for removal in self._removals:
            kill_first_process(removal.container, self._first.get(removal.container.name))
        for removal in self._removals:
            removal.go_on()

    def wait(self, end: float) -> None:
        """Returns when they are gone, or at this boottime."""
        while boottime() < end:
            poll = select.poll()
            for removal in self._removals:
                removal.go_on()
                if removal.connection is not None:
                    poll.register(removal.connection, select.POLLIN)
            self._removals = [each for each in self._removals if not each.is_done]
            if not self._removals:
                return
            poll.poll(_TURN_SECONDS * 1000)


class Removal:
    """Asks an engine to remove a container, until it says that it is gone."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.connection: socket.socket | None = None
        self.is_done = False
        self._was_unknown = False
        self._pause = _FIRST_PAUSE
        self._next_at = 0.0  # boottime of the next request, or when to give this one up

    def go_on(self) -> None:
        """Does what can be done without waiting."""
        if self.connection is not None:
            status = self._answer(self.connection)
            if status is not None:
                self._close(self.connection)
                self._judge(status)
        elif boottime() >= self._next_at:
            self._ask()

    def _ask(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        target = f"/containers/{self.container.name}?force=1&v=1"
        head = f"DELETE {target} HTTP/1.1\r\nHost: rota\r\nConnection: close\r\n\r\n"
        try:
            connection.connect(self.container.engine)
            connection.send(head.encode())
        except OSError:
            self._close(connection)
        else:
            self.connection, self._next_at = connection, boottime() + _ANSWER_SECONDS

    def _answer(self, connection: socket.socket) -> int | None:
        """The status of the engine's answer; 0 for none that makes sense; None: not there yet."""
        try:
            return int(connection.recv(_MAX_ANSWER).split(maxsplit=2)[1])
        except BlockingIOError:
            return 0 if boottime() >= self._next_at else None
        except (OSError, ValueError, IndexError):
            return 0

    def _judge(self, status: int) -> None:
        # A request to create it may have been on its way: one look later it is there, or never.
        self.is_done = status == _REMOVED or (status == _UNKNOWN and self._was_unknown)
        self._was_unknown = status == _UNKNOWN

    def _close(self, connection: socket.socket) -> None:
        connection.close()
        self.connection = None
        self._next_at = boottime() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def kill_first_process(container: Container, pidfd: int | None) -> None:
    """Kills its pid 1 whatever its engine does; the kernel kills the rest of it."""
    if pidfd is None:
        pidfd = pidfd_of(container)
    if pidfd is not None:
        with contextlib.suppress(OSError):  # it is gone, or not ours to kill: the engine will
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def pidfd_of(container: Container) -> int | None:
    """Opens its first process; None when its pid is not known, or is another's.

    An engine may live in another pid namespace than we, where the same pid is another process. So
    it must be pid 1 of a deeper namespace, and not older than the container.
    """
    if not container.pid:
        return None
    with contextlib.suppress(OSError, ValueError):
        pidfd = os.pidfd_open(container.pid)
        numbers = processes.status_numbers(container.pid, "NSpid")
        is_first = len(numbers) > 1 and numbers[-1] == 1
        if is_first and processes.began(container.pid) >= container.noted_at - _CLOCK_TICK:
            return pidfd
        os.close(pidfd)
    return None
