"""The outer process: outlives the inner one to see that nothing else does."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import NoReturn

from rota.guardian.linux import SignalPipe
from rota.guardian.options import ExitCode, Over

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


def fork_inner(run: Callable[[int, int], ExitCode]) -> tuple[int, int]:
    """Forks the process that calls `run(lifeline, switch)`; returns its pid and the switch.

    The lifeline closes when the outer process dies. The worker gets one end of the kill switch.
    """
    lifeline, outer_end = os.pipe()
    kill_switch, worker_end = os.pipe()
    pid = os.fork()
    # Each side closes the ends of the other: a pipe ends only when all copies of an end are closed.
    if pid == 0:
        os.close(outer_end)
        os.close(kill_switch)
        os._exit(run(lifeline, worker_end))
    os.close(lifeline)
    os.close(worker_end)
    return pid, kill_switch


class Watch:
    """Passes a request to stop inwards, and says when all has to end.

    A byte on the kill switch says that the inner process no longer answers the worker, who cannot
    kill it: pid 1 is immune to the signals of its own namespace.
    """

    def __init__(self, inner: int, kill_switch: int, parent_fd: int | None) -> None:
        self._inner = inner
        self._kill_switch = kill_switch
        self._parent_fd = parent_fd
        self._signals = SignalPipe(SIGNALS)
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)
        self._poll.register(kill_switch, select.POLLIN)
        if parent_fd is not None:
            self._poll.register(parent_fd, select.POLLIN)

    def run(self) -> NoReturn:
        """Ends only by raising `Over`."""
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._parent_fd:
                    self._check_launcher(fd)
                elif fd == self._kill_switch:
                    self._check_kill_switch(fd)
                else:
                    self._take_signals()

    def _check_launcher(self, fd: int) -> None:
        if not os.read(fd, 1):
            raise Over(ExitCode.LAUNCHER_GONE, "the launcher is gone: killed everything")

    def _check_kill_switch(self, fd: int) -> None:
        if os.read(fd, 1):
            raise Over(ExitCode.GUARDIAN_DIED, "given up by the worker: killed everything")
        self._poll.unregister(fd)  # the worker ended, which is the inner process's business

    def _take_signals(self) -> None:
        arrived = self._signals.take()
        if signal.SIGCHLD in arrived:
            self._check_inner()
        if not arrived.isdisjoint({signal.SIGTERM, signal.SIGINT}):
            os.kill(self._inner, signal.SIGTERM)

    def _check_inner(self) -> None:
        pid, wait_status = os.waitpid(self._inner, os.WNOHANG)
        if pid != self._inner:
            return
        code = os.waitstatus_to_exitcode(wait_status)
        if code < 0:
            reason = f"the inner process died by signal {-code}: killed everything"
            raise Over(ExitCode.GUARDIAN_DIED, reason)
        raise Over(ExitCode(code))  # it has said why
