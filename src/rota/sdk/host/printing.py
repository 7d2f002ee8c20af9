"""Standard output and error that lead to the attempt whose function prints.

What is printed outside of any attempt, by a thread a function started or by a child process goes
where the host's own output goes.
"""

from __future__ import annotations

import io
import sys
from typing import BinaryIO, TextIO

from rota.sdk.host.execution import current


def route_output() -> None:
    """From here on `print` belongs to whoever calls it."""
    sys.stdout = RoutedText("stdout", sys.stdout)
    sys.stderr = RoutedText("stderr", sys.stderr)


class RoutedBytes(io.BufferedIOBase):
    """The binary side: `sys.stdout.buffer`."""

    def __init__(self, stream: str, elsewhere: BinaryIO) -> None:
        self._stream = stream
        self._elsewhere = elsewhere

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        execution = current.get()
        if execution is None:
            return self._elsewhere.write(data)
        execution.write(self._stream, bytes(data))
        return len(data)

    def flush(self) -> None:
        if current.get() is None:
            self._elsewhere.flush()

    def fileno(self) -> int:
        return self._elsewhere.fileno()


class RoutedText(io.TextIOBase):
    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, stream: str, elsewhere: TextIO) -> None:
        self.buffer = RoutedBytes(stream, elsewhere.buffer)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.buffer.write(text.encode(errors="backslashreplace"))
        return len(text)

    def flush(self) -> None:
        self.buffer.flush()

    def fileno(self) -> int:
        return self.buffer.fileno()
