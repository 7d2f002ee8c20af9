"""Signals as bytes on a descriptor, so that one poll waits for them and for all else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import FrameType

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
