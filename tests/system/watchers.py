"""Watchers: `rota` commands whose output is read as it comes, on a terminal or in a pipe."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

from testkit.processes import ROTA, RotaUp
from testkit.waiting import PATIENCE, eventually


class Watcher:
    """A `rota` command whose output is read as it comes."""

    def __init__(self, rota: RotaUp, *words: str, columns: int | None) -> None:
        self.is_terminal = columns is not None
        self._ours, theirs = os.openpty() if self.is_terminal else os.pipe()
        if columns is not None:
            ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environ = {**rota.environ, "TERM": "xterm", "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            [ROTA, *words],
            env=environ,
            cwd=rota.home.parent,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.told = ""

    def sees(self, text: str) -> str:
        """Wait until a text was written; return all that was so far."""
        return eventually(lambda: self._read() if text in self._read() else "", PATIENCE)

    def ended(self) -> int:
        """Wait until the command has ended; return its exit code."""
        eventually(lambda: self._read() is not None and self.process.poll() is not None)
        self._read()
        return int(self.process.returncode)

    def interrupt(self) -> int:
        """Press Ctrl-C; return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE.total_seconds())
        os.close(self._ours)

    def _read(self) -> str:
        while select.select([self._ours], [], [], 0)[0]:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # a terminal whose other side is closed
                break
            if not data:
                break
            self.told += data.decode().replace("\r\n", "\n")
        return self.told


@contextmanager
def watching(rota: RotaUp, *words: str, columns: int | None = None) -> Iterator[Watcher]:
    watcher = Watcher(rota, *words, columns=columns)
    try:
        yield watcher
    finally:
        watcher.close()


def waits_for(gate: Path, *before: str) -> str:
    return "\n".join([*before, f"while ! [ -e {gate} ]; do sleep 0.05; done"])
