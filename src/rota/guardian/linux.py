"""Kernel calls that the standard library does not offer, and signals as bytes to poll for."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable
from types import FrameType

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 0x2, 0x4, 0x8, 0x4000, 0x80000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_TFD_TIMER_ABSTIME = 1
_CLONE_INTO_CGROUP = 1 << 33
_SYS_CLONE3 = 435  # of every architecture

_libc = ctypes.CDLL(None, use_errno=True)
_libc_under_lock = ctypes.PyDLL(None, use_errno=True)  # keeps Python's lock over the call
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def _check(result: int, call: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def boottime() -> float:
    """Seconds since boot, time in suspend included: the clock of every deadline here."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def pause(seconds: float) -> None:
    """Waits, where nothing can be waited for."""
    select.select((), (), (), seconds)


def become_subreaper() -> None:
    """Orphaned descendants become children of this process from now on."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends; a parent already gone is not noticed."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")


def gain_nothing_by_exec() -> None:
    """Setuid programs and file capabilities give this process, and all it starts, nothing more."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def set_name(name: str) -> None:
    """Shows people what this process is, where its command line does not say it."""
    with open("/proc/self/comm", "w") as file:
        file.write(name)


class _CloneArguments(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
            "cgroup",
        )
    ]


def fork_into(group: int) -> int:
    """Forks into the control group (version 2) of this descriptor.

    To enter one after the fork makes the kernel wait until every processor has passed a quiet
    state: 6 to 10 ms. Neither the C library nor Python hears of this fork: only for a process of
    a single thread, and a child that executes a program soon.
    """
    arguments = _CloneArguments(flags=_CLONE_INTO_CGROUP, exit_signal=signal.SIGCHLD, cgroup=group)
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    number = ctypes.c_long(_SYS_CLONE3)
    return _check(_libc_under_lock.syscall(number, ctypes.byref(arguments), size), "clone3")


def unshare(flags: int) -> None:
    """Leaves the named namespaces for fresh ones; a pid namespace holds for children only."""
    _check(_libc.unshare(flags), "unshare")


def set_namespace(descriptor: int, kind: int) -> None:
    """Enters the namespace of this kind; one of users lets only a single thread in."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount_own_proc() -> None:
    """Gives this mount namespace a /proc that shows its own pids, invisible to all others."""
    _keep_mounts_inside()
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount /proc")


def mount_over(folder: str, options: str) -> None:
    """Puts an empty folder in the place of this one, in this mount namespace alone."""
    _keep_mounts_inside()
    target, data = os.fsencode(folder), options.encode()
    _check(_libc.mount(b"tmpfs", target, b"tmpfs", 0, data), f"mount {folder}")


def _keep_mounts_inside() -> None:
    """What is mounted here does not spread, while mounts of the machine still arrive."""
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None), "mount /")


class _TimerSpec(ctypes.Structure):
    _fields_ = [
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    ]


class BoottimeTimer:
    """A descriptor that becomes readable at an instant of `boottime`.

    Timeouts of epoll stand still while the machine sleeps: a lease that ends meanwhile would be
    noticed late.
    """

    def __init__(self) -> None:
        flags = os.O_CLOEXEC | os.O_NONBLOCK
        self._fd = _check(_libc.timerfd_create(time.CLOCK_BOOTTIME, flags), "timerfd_create")

    def fileno(self) -> int:
        return self._fd

    def set(self, instant: float) -> None:
        # An instant of zero would disarm the timer, and one before boot is refused.
        nanoseconds = max(1, round(instant * 1e9))
        spec = _TimerSpec(0, 0, *divmod(nanoseconds, 1_000_000_000))
        result = _libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)
        _check(result, "timerfd_settime")


_CHUNK = 1 << 16  # as much as a pipe holds


def hold(numbers: Iterable[signal.Signals]) -> None:
    """Keeps these signals pending until a `SignalPipe` takes them: none is lost over a fork."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


class SignalPipe:
    """Takes the given signals of this process; only one can exist in a process."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _leave_to_the_pipe)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def fileno(self) -> int:
        return self._read

    def take(self) -> set[int]:
        """The signals that arrived since the last call."""
        try:
            return set(os.read(self._read, _CHUNK))
        except BlockingIOError:
            return set()


def _leave_to_the_pipe(number: int, frame: FrameType | None) -> None:
    """Python writes to the wake-up descriptor only for signals that have a handler."""
