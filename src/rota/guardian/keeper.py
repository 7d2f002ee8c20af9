"""The keeper: a process beside the guardian's two, for what they cannot reach or no longer do.

    launcher ─▶ outer ─┬▶ keeper
                       └▶ inner ─┬▶ worker
                                 └▶ processes of attempts          containers: children of an engine

It is forked before the pid namespace is made, leads a session of its own and dies with nobody. The
inner process writes the deadline of the lease into memory that all three share, at each renewal, so
that a process that is stopped or killed takes no knowledge away. The worker notes its containers
here, each before it is created.

It ends everything, and then itself, when the lease has ended, when the outer process is dead, or
when that asks for it. With a namespace it is enough to kill the inner process: it is pid 1 there,
and the kernel does the rest, also when it is stopped. Without one the keeper kills what is below
the inner process, then that, then what is below the outer one; then what is left in control groups
of this life, or carries its marker. Containers are killed by the pid of their first process where
that is known and may be killed, and removed through their engine until they are gone.

Who is killed or stopped, and what happens:

    worker killed       the inner process sees it: all end, the outer one says why
    worker stopped      the inner process ends all at the deadline
    inner killed        the kernel (or the outer process) kills the rest; the outer one ends
    inner stopped       the worker asks the outer process to end all; the keeper at the deadline
    outer killed        the kernel kills the inner process, which is tied to it (without a namespace
                        it notices, and ends all); the keeper does if that one is stopped
    outer stopped       the inner process ends all at the deadline; then the keeper kills the outer
                        one, so that the launcher may start another
    worker, inner and outer stopped       the keeper ends all at the deadline
    inner and outer killed at once        without a namespace: the keeper, by groups and markers
    keeper killed       the outer process ends all, then the containers in the keeper's place
    keeper stopped      the outer process continues it at once
    launcher killed     the outer process is killed, or sees the end of a pipe: as above
    all of them         with a namespace the kernel kills all processes; containers, and processes
                        without a namespace, live until the next start, which sweeps them first
    all of them stopped nothing happens before they are continued: that is the limit
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import NoReturn

from rota.guardian import linux, processes
from rota.guardian.cgroups import Cgroups
from rota.guardian.containers import Container, Ending, pidfd_of
from rota.guardian.linux import BoottimeTimer, boottime

SLACK_SECONDS = 0.1  # after the deadline, for the inner process, which can say why it ends all
_OUTER_SECONDS = 1.0  # for the outer process to notice that all ended; then it is killed
_PROCESSES_SECONDS = 5.0  # to kill what is below; longer only for what sleeps in the kernel
_LEAVING_SECONDS = 3.0  # that the outer process waits for the keeper, which may stay behind

_GIVING_UP_SECONDS = 600.0  # what an engine has not removed by then is swept at the next start

_DEADLINE = struct.Struct("d")
_LENGTH = struct.Struct("I")
_SLOT_BYTES = 1 << 20
_SLOTS_AT = (4096, 4096 + _SLOT_BYTES)
_CURRENT_AT = _DEADLINE.size
_MAX_MESSAGE = 1 << 16
_DISMISSED = b""  # also what is read when the other end is closed


class Memory:
    """Memory that outlives the process that writes it. Each part has one writer."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("rota-keeper", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _SLOTS_AT[-1] + _SLOT_BYTES)

    @property
    def deadline(self) -> float:
        """Boottime by which all must be dead; 0.0: no lease yet."""
        [deadline] = _DEADLINE.unpack(os.pread(self._fd, _DEADLINE.size, 0))
        return float(deadline)

    def set_deadline(self, deadline: float) -> None:
        os.pwrite(self._fd, _DEADLINE.pack(deadline), 0)  # aligned: it is written whole

    def is_over(self) -> bool:
        return 0 < self.deadline <= boottime()

    def containers(self) -> dict[str, Container]:
        at = _SLOTS_AT[self._current()]
        [length] = _LENGTH.unpack(os.pread(self._fd, _LENGTH.size, at))
        listed = json.loads(os.pread(self._fd, length, at + _LENGTH.size) or b"[]")
        return {fields["name"]: Container(**fields) for fields in listed}

    def set_containers(self, containers: Iterable[Container]) -> None:
        """Writes them aside; then one byte says which list holds."""
        text = json.dumps([asdict(each) for each in containers]).encode()
        if len(text) > _SLOT_BYTES - _LENGTH.size:
            raise OSError(errno.ENOSPC, "too many containers")
        aside = 1 - self._current()
        os.pwrite(self._fd, _LENGTH.pack(len(text)) + text, _SLOTS_AT[aside])
        os.pwrite(self._fd, bytes([aside]), _CURRENT_AT)

    def _current(self) -> int:
        return os.pread(self._fd, 1, _CURRENT_AT)[0]


class Line:
    """Access to the keeper for the inner process, and the worker's end of its socket."""

    def __init__(self, memory: Memory, wake: int, worker_end: socket.socket) -> None:
        self._memory = memory
        self._wake = wake
        self.worker_end = worker_end

    def renew(self, deadline: float) -> None:
        """The keeper ends everything at this instant, unless it is renewed again."""
        self._memory.set_deadline(deadline)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake, 1)


class KeeperProcess:
    """The keeper, as the outer process has it: to be started before the namespace is made."""

    def __init__(self, cgroups: Cgroups, *, is_namespace: bool) -> None:
        self.memory = Memory()
        self._orders, orders_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keeper_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.line = Line(self.memory, wake, worker_end)
        self._is_left_over = False  # it was killed: its work is not done
        outer = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _run(
                lambda: Keeper(self.memory, cgroups, outer, is_namespace=is_namespace).run(
                    orders_end, keeper_end, wake
                )
            )
        keeper_end.close()
        orders_end.close()

    def watch(self, inner: int) -> None:
        """Tells it which process to kill."""
        self.line.worker_end.close()  # which only the worker needs from now on
        pidfd = os.pidfd_open(inner)
        with contextlib.suppress(OSError):  # it died: that is noticed elsewhere
            socket.send_fds(self._orders, [str(inner).encode()], [pidfd])
        os.close(pidfd)

    def is_dead(self) -> bool:
        """Whether it is; a stopped one is continued: nobody has a reason to stop it."""
        try:
            pid, wait_status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return True
        if pid and os.WIFSTOPPED(wait_status):
            os.kill(self.pid, signal.SIGCONT)
            return False
        self._is_left_over = bool(pid) and wait_status != 0
        return bool(pid)

    def dismiss(self) -> None:
        """Lets it end what there is to end, and then itself."""
        with contextlib.suppress(OSError):
            self._orders.send(_DISMISSED)

    def leave(self) -> None:
        """Waits until all is ended; in the place of a keeper that was killed, ends it."""
        end = boottime() + _LEAVING_SECONDS
        while not self.is_dead():
            if boottime() > end:
                return  # it stays until an engine has done what it was asked for
            linux.pause(0.002)
        if self._is_left_over:
            ending = Ending(self.memory.containers().values(), {})
            ending.begin()
            ending.wait(end)


def _run(keep: Callable[[], None]) -> NoReturn:
    """Ends this process, whatever happens: there is but one outer process."""
    try:
        os.setsid()
        linux.set_name("rota-keeper")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # it ends with the guardian, not before
        keep()
        os._exit(0)
    except Exception:  # noqa: BLE001 – the edge of the process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


class _EndNow(Exception):
    """Raised where it is decided that everything has to end."""


class Keeper:
    """One thread, one loop."""

    def __init__(self, memory: Memory, cgroups: Cgroups, outer: int, *, is_namespace: bool) -> None:
        self._memory = memory
        self._cgroups = cgroups
        self._is_namespace = is_namespace
        self._outer = outer
        self._outer_fd = os.pidfd_open(outer)
        self._inner = 0
        self._inner_fd: int | None = None
        self._containers: dict[str, Container] = {}
        self._is_dismissed = False
        self._first_processes: dict[str, int] = {}  # pidfds, by the name of the container
        self._timer = BoottimeTimer()

    def run(self, orders: socket.socket, worker: socket.socket, wake: int) -> None:
        """Returns when everything has ended."""
        try:
            self._watch(orders, worker, wake)
        except _EndNow:
            self._end(orders)

    def _watch(self, orders: socket.socket, worker: socket.socket, wake: int) -> None:
        poll = select.poll()
        for source in (orders, worker, wake, self._timer, self._outer_fd):
            poll.register(source, select.POLLIN)
        if os.getppid() != self._outer:
            raise _EndNow  # it died before we could watch it
        while True:
            self._check_time()
            for fd, _ in poll.poll():
                if fd == self._outer_fd:
                    raise _EndNow
                if fd == orders.fileno():
                    self._take_order(orders)
                elif fd == wake:
                    os.eventfd_read(wake)
                elif fd == worker.fileno() and not self._serve(worker):
                    poll.unregister(worker)  # the worker ended, which others notice

    def _check_time(self) -> None:
        if deadline := self._memory.deadline:
            if boottime() >= deadline + SLACK_SECONDS:
                raise _EndNow
            self._timer.set(deadline + SLACK_SECONDS)

    def _take_order(self, orders: socket.socket) -> None:
        told, fds, _, _ = socket.recv_fds(orders, _MAX_MESSAGE, 1)
        if told == _DISMISSED:
            self._is_dismissed = True
            raise _EndNow
        self._inner, [self._inner_fd] = int(told), fds

    def _serve(self, worker: socket.socket) -> bool:
        """Whether the worker may want more."""
        request = worker.recv(_MAX_MESSAGE)
        if not request:
            return False
        fields = json.loads(request)
        if fields["do"] == "network":
            error, descriptors = self._network_of(str(fields["name"]))
        else:
            error, descriptors = self._obey(fields), []
        answer = json.dumps({"id": fields["id"], "error": error}).encode()
        with contextlib.suppress(OSError):
            socket.send_fds(worker, [answer], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _network_of(self, name: str) -> tuple[str, list[int]]:
        """What is wrong, or the network namespace of a container, which the worker cannot see.

        The worker may be in a pid namespace where the engine's pids mean nothing.
        """
        first, container = self._first_processes.get(name), self._containers.get(name)
        if first is None or container is None:
            return f"no first process is known of the container {name!r}", []
        try:
            namespace = os.open(f"/proc/{container.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return f"its network namespace cannot be opened: {error.strerror}", []
        if _has_ended(first):  # and the pid may have been another's
            os.close(namespace)
            return "its first process has ended", []
        return "", [namespace]

    def _obey(self, fields: Mapping[str, object]) -> str:
        """What is wrong with the request; "" when it is done."""
        name = str(fields["name"])
        if fields["do"] != "release" and self._memory.is_over():
            return "the lease has ended"
        noted = dict(self._containers)
        match fields["do"]:
            case "keep":
                noted[name] = Container(str(fields["engine"]), name, boottime())
            case "started" if name in noted:
                noted[name] = replace(noted[name], pid=int(str(fields["pid"])))
            case "release":
                noted.pop(name, None)
            case _:
                return f"no container is noted by the name {name!r}"
        try:
            self._memory.set_containers(noted.values())
        except OSError as error:
            return str(error.strerror)
        self._containers = noted
        self._watch_first_process(name)
        return ""

    def _watch_first_process(self, name: str) -> None:
        if (before := self._first_processes.pop(name, None)) is not None:
            os.close(before)
        if container := self._containers.get(name):
            pidfd = pidfd_of(container)
            if pidfd is not None:
                self._first_processes[name] = pidfd

    def _end(self, orders: socket.socket) -> None:
        ending = Ending(self._containers.values(), self._first_processes)
        self._kill_processes()
        ending.begin()
        if not self._is_dismissed and not self._is_outer_awake(orders):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._outer_fd, signal.SIGKILL)
        self._cgroups.remove()  # the outer process, which does so too, may be killed before
        _leave_standard_streams()
        ending.wait(boottime() + _GIVING_UP_SECONDS)

    def _is_outer_awake(self, orders: socket.socket) -> bool:
        """Whether the outer process sees in time that all has ended, and ends too."""
        poll = select.poll()
        for source in (orders, self._outer_fd):
            poll.register(source, select.POLLIN)
        end = boottime() + _OUTER_SECONDS
        while (left := end - boottime()) > 0:
            for fd, _ in poll.poll(left * 1000):
                if fd == self._outer_fd or orders.recv(_MAX_MESSAGE) == _DISMISSED:
                    return True
        return False

    def _kill_processes(self) -> None:
        if self._is_namespace:
            if self._inner_fd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._inner_fd, signal.SIGKILL)
            return
        self._cgroups.kill()
        end = boottime() + _PROCESSES_SECONDS
        for anchor, pidfd in ((self._inner, self._inner_fd), (self._outer, self._outer_fd)):
            # The pid of one that is dead may stand for another by now.
            while pidfd is not None and not _has_ended(pidfd) and boottime() < end:
                if processes.kill_below(anchor, spared=os.getpid()):
                    break
                linux.pause(0.002)
        while (pids := processes.marked(f"{self._cgroups.life}/")) and boottime() < end:
            processes.kill_each(pids)
            linux.pause(0.002)


def _leave_standard_streams() -> None:
    """Whoever reads what the guardian says must not wait for an engine."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in range(3):
        os.dup2(null, stream)


def _has_ended(pidfd: int) -> bool:
    return bool(select.select((pidfd,), (), (), 0)[0])
