"""The inner process: starts the worker, then obeys it, reaps, reports, and kills in time."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import NoReturn

from rota.guardian import linux, messages, namespace, processes
from rota.guardian.cgroups import Cgroups
from rota.guardian.channel import Channel, Closed, socket_pair
from rota.guardian.keeper import Line
from rota.guardian.linux import BoottimeTimer, SignalPipe, boottime
from rota.guardian.messages import Bad, Hello, Kill, Lease, Limits, Message, Request, Signal, Spawn
from rota.guardian.namespace import Mode
from rota.guardian.options import ExitCode, Options, Over
from rota.guardian.spawn import Command, Refused, Spawner, refusal_of
from rota.guardian.trees import Tree, Trees

_CHANNEL_FD, _KILL_FD, _KEEPER_FD = 3, 4, 5  # as the worker sees them
_OUT_OF_THE_WAY = 10


def run(
    options: Options, mode: Mode, cgroups: Cgroups, keeper: Line, lifeline: int, kill_switch: int
) -> ExitCode:
    """Never raises: the process ends with what this returns."""
    try:
        linux.set_name("rota-inner")
        namespace.enter(mode)
        cgroups.enter()
        spawner = Spawner(cgroups)
        sockets = {_KILL_FD: kill_switch, _KEEPER_FD: keeper.worker_end.detach()}
        worker, channel = _start_worker(spawner, options.worker_argv, sockets)
        guardian = Guardian(worker, channel, spawner, mode, cgroups.offers, keeper)
        guardian.run(lifeline, options.stop_grace)
    except Over as over:
        if mode is Mode.SUBREAPER:  # in a namespace the kernel does it better when this one ends
            processes.kill_all()
        return over.explain()
    except Exception:  # noqa: BLE001 – the edge of the process, which must end with a known code
        sys.excepthook(*sys.exc_info())
    return ExitCode.GUARDIAN_DIED


def _start_worker(
    spawner: Spawner, argv: tuple[str, ...], descriptors: Mapping[int, int]
) -> tuple[Tree, Channel]:
    ours, theirs = socket_pair()
    descriptors = {_CHANNEL_FD: theirs.detach(), **descriptors}
    descriptors = {number: _moved(fd) for number, fd in descriptors.items()}
    env = {
        **os.environ,
        "ROTA_GUARDIAN_FD": str(_CHANNEL_FD),
        "ROTA_GUARDIAN_KILL_FD": str(_KILL_FD),
        "ROTA_KEEPER_FD": str(_KEEPER_FD),
    }
    try:
        worker = spawner.spawn("worker", Command(argv, env, os.getcwd(), descriptors))
    except Refused as refusal:
        raise Over(ExitCode.CANNOT_START, f"no worker: {refusal.reason}") from refusal
    for fd in descriptors.values():
        os.close(fd)
    return worker, Channel(ours)


def _moved(fd: int) -> int:
    """The same file under a number that no descriptor of the worker can overwrite."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    os.close(fd)
    return moved


SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_REAPED_IN_A_TURN = 256
_TRY_AGAIN_SECONDS = 0.02  # to kill what will not die, to send what the worker does not read


class Guardian:
    """One thread, one loop; a turn never waits for anything but the next event."""

    def __init__(
        self,
        worker: Tree,
        channel: Channel,
        spawner: Spawner,
        mode: Mode,
        limits: Mapping[str, str],
        keeper: Line,
    ) -> None:
        self._limits = limits  # why each cannot be had; "" for one that can
        self._keeper = keeper
        self._worker = worker
        self._channel = channel
        self._spawner = spawner
        self._mode = mode
        self._trees = Trees(worker)
        self._signals = SignalPipe(SIGNALS)
        self._timer = BoottimeTimer()
        self._has_zombies = False
        self._deadline: float | None = None  # None: no lease yet, so nothing may be spawned
        self._stop_at: float | None = None  # None: not asked to stop
        self._epoll = select.epoll()
        for source in (self._signals, self._timer, self._channel):
            self._epoll.register(source, select.EPOLLIN)

    def run(self, lifeline: int, stop_grace: timedelta) -> NoReturn:
        """Ends only by raising `Over`, also when the other end of the lifeline is closed."""
        self._epoll.register(lifeline, select.EPOLLIN)
        while True:
            ready = {fd for fd, _ in self._epoll.poll(self._patience())}
            if lifeline in ready:
                raise Over(ExitCode.GUARDIAN_DIED, "the outer process is gone")
            self._take_signals(stop_grace)
            self._check_time()
            if self._channel.fileno() in ready:
                self._listen()
            self._trees.signal_waiting()
            self._report()

    def _patience(self) -> float | None:
        if self._has_zombies:
            return 0.0
        waits = []
        if self._channel.has_outgoing or not self._trees.is_settled:
            waits.append(_TRY_AGAIN_SECONDS)
        if self._stop_at is not None:
            waits.append(max(0.0, self._stop_at - boottime()))
        return min(waits, default=None)

    def _take_signals(self, stop_grace: timedelta) -> None:
        arrived = self._signals.take()
        if signal.SIGCHLD in arrived or self._has_zombies:
            self._has_zombies = self._reap()
        if not arrived.isdisjoint({signal.SIGTERM, signal.SIGINT}) and self._stop_at is None:
            self._stop_at = boottime() + stop_grace.total_seconds()
            os.kill(self._worker.pid, signal.SIGTERM)

    def _check_time(self) -> None:
        now = boottime()
        if self._deadline is not None and now >= self._deadline:
            raise Over(ExitCode.LEASE_ENDED, "the lease ended without a renewal: killed everything")
        if self._stop_at is not None and now >= self._stop_at:
            raise Over(ExitCode.CLEAN, "the worker did not stop in time: killed everything")

    def _reap(self) -> bool:
        """Whether there may be more: a job that forks all the time can supply them for ever."""
        for _ in range(_REAPED_IN_A_TURN):
            pid, wait_status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return False
            if pid == self._worker.pid:
                raise self._over_with_worker(wait_status)
            self._trees.reaped(pid, wait_status, usage, boottime())
        return True

    def _over_with_worker(self, wait_status: int) -> Over:
        code = os.waitstatus_to_exitcode(wait_status)
        if code == 0 or self._stop_at is not None:
            return Over(ExitCode.CLEAN)
        if code == ExitCode.WORKER_REFUSED:
            return Over(ExitCode.WORKER_REFUSED)  # the launcher knows why
        how = f"with status {code}" if code > 0 else f"by signal {-code}"
        return Over(ExitCode.WORKER_DIED, f"the worker ended {how}: killed everything")

    def _listen(self) -> None:
        try:
            with self._channel.receive() as (datagram, fds):
                for request in messages.decode(datagram, fds):
                    self._obey(request)
        except Closed:
            self._epoll.unregister(self._channel)  # the worker ends; if not, the lease does

    def _obey(self, request: Request) -> None:
        match request:
            case Hello():
                self._channel.send(messages.hello(self._mode, os.getpid()))
            case Limits():
                self._channel.send(messages.limits(self._limits))
            case Lease(deadline):
                self._renew(deadline)
            case Spawn():
                self._spawn(request)
            case Signal(key, number):
                self._trees.signal(key, number)
            case Kill(key):
                self._trees.condemn(key)
            case Bad(error, key):
                self._channel.send(
                    messages.refused(key, error, errno.EINVAL) if key else messages.error(error)
                )

    def _renew(self, deadline: float) -> None:
        self._check_time()  # too late is too late: a renewal cannot revive a lease
        self._deadline = deadline
        self._keeper.renew(deadline)
        self._timer.set(deadline)

    def _spawn(self, request: Spawn) -> None:
        try:
            self._check_may_spawn(request.key)
            tree = self._spawner.spawn(request.key, request.command)
        except Refused as refusal:
            self._channel.send(messages.refused(request.key, refusal.reason, refusal.number))
        else:
            self._trees.add(tree)

    def _check_may_spawn(self, key: str) -> None:
        if key in self._trees:
            raise Refused(errno.EEXIST, "there is already a process tree with this key")
        if self._deadline is None or boottime() >= self._deadline:
            raise Refused(errno.ESTALE, "there is no valid lease")

    def _report(self) -> None:
        for tree in self._trees.settle():
            self._channel.send(self._ended(tree))
        self._channel.flush()

    def _ended(self, tree: Tree) -> Message:
        tree.take_group_usage()
        self._spawner.forget(tree)
        if refusal := refusal_of(tree):
            return messages.refused(tree.key, refusal.reason, refusal.number)
        return messages.ended(tree)
