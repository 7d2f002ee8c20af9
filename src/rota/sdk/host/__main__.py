"""Serves an app's functions to the worker at the other end of a socket.

Standard output and error lead to the attempt whose function prints. What is printed outside of any
attempt, by a thread a function started or by a child process goes where the host's own output goes.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import socket
import sys
import traceback
from typing import BinaryIO, TextIO

from rota.sdk.app import explain_import, is_not_there, load_served
from rota.sdk.host import wire
from rota.sdk.host.execution import current, sendable
from rota.sdk.host.threads import serve


def main() -> int:
    reference, path = sys.argv[1:]
    # Ctrl-C reaches the whole terminal group, but when to stop is for the worker to say.
    signal.signal(signal.SIGINT, lambda *_: None)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    route_output()
    try:
        served = load_served(reference)
    except BaseException as error:  # noqa: BLE001 (importing runs the user's code)
        if not is_not_there(reference, error):
            traceback.print_exception(error)
        wire.send(connection, wire.Unusable(sendable(explain_import(reference, error))))
        return 1
    gc.collect()
    gc.freeze()  # what there is now stays: searching it for garbage holds up every function
    types = tuple(hosted.described() for hosted in served.executors)
    wire.send(connection, wire.Hello(os.getpid(), tuple(served.functions), types))
    calls = {name: call for each in served.executors for name, call in each.functions().items()}
    serve(connection, {**served.functions, **calls})
    return 0


def route_output() -> None:
    """Route `print` to the attempt that calls it, from here on."""
    sys.stdout = RoutedText("stdout", sys.stdout)
    sys.stderr = RoutedText("stderr", sys.stderr)


class RoutedBytes(io.BufferedIOBase):
    """Binary side: `sys.stdout.buffer`."""

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


if __name__ == "__main__":
    sys.exit(main())
