"""Serves an app's functions to the worker at the other end of a socket."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback

from rota.sdk.app import load_app
from rota.sdk.host import wire
from rota.sdk.host.execution import sendable
from rota.sdk.host.printing import route_output
from rota.sdk.host.service import serve


def main() -> int:
    reference, path = sys.argv[1:]
    # Ctrl-C reaches the whole terminal group, but when to stop is for the worker to say.
    signal.signal(signal.SIGINT, lambda *_: None)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    route_output()
    try:
        functions = load_app(reference).functions
    except BaseException as error:  # noqa: BLE001 (importing runs the user's code)
        traceback.print_exception(error)
        last_line = traceback.format_exception_only(error)[-1].strip()
        wire.send(connection, wire.Unusable(sendable(last_line)))
        return 1
    gc.collect()
    gc.freeze()  # what there is now stays: searching it for garbage holds up every function
    wire.send(connection, wire.Hello(os.getpid(), tuple(functions)))
    serve(connection, functions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
