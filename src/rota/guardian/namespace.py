"""Ways to make sure that no process outlives the guardian.

A namespace, or a subreaper; and the outer process, which outlives the inner one to see that nothing
else does.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NoReturn

from rota.guardian import NamespaceWish, linux, processes
from rota.guardian.keeper import KeeperProcess
from rota.guardian.linux import SignalPipe
from rota.guardian.options import ExitCode, Over

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)  # that the outer process takes


class Mode(StrEnum):
    """How firmly descendants are held, as told to the worker."""

    NAMESPACE = "namespace"  # the inner process is pid 1: its end is the end of all, by the kernel
    USER_NAMESPACE = "user-namespace"  # the same without root; other users' files look foreign
    SUBREAPER = "subreaper"  # outer and inner each kill what the other leaves; lost if both die


# Not "auto" without root: in a user namespace sudo fails, and ssh refuses its own configuration
# because root's files seem to belong to nobody. That would surprise the jobs of most people.
_CANDIDATES: Mapping[tuple[NamespaceWish, bool], tuple[Mode, ...]] = {
    ("auto", True): (Mode.NAMESPACE, Mode.SUBREAPER),
    ("auto", False): (Mode.SUBREAPER,),
    ("require", True): (Mode.NAMESPACE,),
    ("require", False): (Mode.USER_NAMESPACE,),
    ("off", True): (Mode.SUBREAPER,),
    ("off", False): (Mode.SUBREAPER,),
}


def choose(wish: NamespaceWish) -> Mode:
    """The firmest mode that the wish allows and the machine permits."""
    if not processes.is_supported():
        raise Over(ExitCode.CANNOT_START, "this kernel was built without CONFIG_PROC_CHILDREN")
    for mode in _CANDIDATES[wish, os.geteuid() == 0]:
        if is_possible(mode):
            return mode
    raise Over(
        ExitCode.CANNOT_START,
        "this machine permits no pid namespace (a container needs CAP_SYS_ADMIN for it, a user"
        " other than root needs user namespaces); '--namespace auto' does without",
    )


def is_possible(mode: Mode) -> bool:
    """Rehearses in a process of its own, since nobody can come back from a namespace."""
    pid = os.fork()
    if pid == 0:
        os._exit(_rehearse(mode))
    return os.waitpid(pid, 0)[1] == 0


def _rehearse(mode: Mode) -> int:
    try:
        prepare(mode)
        inner = os.fork()
        if inner == 0:
            enter(mode)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
    except OSError:
        return 1


def prepare(mode: Mode) -> None:
    """The outer process's part, before it forks the inner one."""
    match mode:
        case Mode.NAMESPACE:
            linux.unshare(linux.CLONE_NEWPID)
        case Mode.USER_NAMESPACE:
            _enter_user_namespace()
        case Mode.SUBREAPER:
            linux.become_subreaper()


def enter(mode: Mode) -> None:
    """The inner process's part, right after the fork."""
    os.setsid()  # the terminal's Ctrl-C is for the launcher, who knows how to stop cleanly
    if mode is Mode.SUBREAPER:
        linux.become_subreaper()
        return
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount_own_proc()
    linux.die_with_parent()


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWPID)
    _tell_kernel("/proc/self/setgroups", "deny")  # or the kernel refuses a gid_map without root
    _tell_kernel("/proc/self/uid_map", f"{uid} {uid} 1")
    _tell_kernel("/proc/self/gid_map", f"{gid} {gid} 1")


def _tell_kernel(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


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

    def __init__(
        self, inner: int, kill_switch: int, parent_fd: int | None, keeper: KeeperProcess
    ) -> None:
        self._inner = inner
        self._keeper = keeper
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
            if self._keeper.is_dead():
                raise Over(ExitCode.GUARDIAN_DIED, "the keeper died: killed everything")
        if not arrived.isdisjoint({signal.SIGTERM, signal.SIGINT}):
            os.kill(self._inner, signal.SIGTERM)

    def _check_inner(self) -> None:
        pid, wait_status = os.waitpid(self._inner, os.WNOHANG)
        if pid != self._inner:
            return
        code = os.waitstatus_to_exitcode(wait_status)
        if code < 0 and self._keeper.memory.is_over():
            reason = "the lease ended, and nobody else noticed: the keeper killed everything"
            raise Over(ExitCode.LEASE_ENDED, reason)
        if code < 0:
            reason = f"the inner process died by signal {-code}: killed everything"
            raise Over(ExitCode.GUARDIAN_DIED, reason)
        raise Over(ExitCode(code))  # it has said why
