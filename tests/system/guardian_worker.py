"""A worker that lets a test speak to the guardian: it hands its descriptors over and waits.

It says "TERM" on the control socket when it gets that signal, and ends with the status that it
is told there.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: control.send(b"TERM"))
descriptors = [int(os.environ["ROTA_GUARDIAN_FD"]), int(os.environ["ROTA_GUARDIAN_KILL_FD"])]
socket.send_fds(control, [b"ready"], descriptors)
for descriptor in descriptors:
    os.close(descriptor)
status = control.recv(1)
sys.exit(status[0] if status else 0)
