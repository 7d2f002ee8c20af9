"""A worker that lets a test speak to the guardian: it hands its descriptors over and waits.

It says "TERM" on the control socket when it gets that signal. What it is told there is either
the status to end with, or a shell command to run itself.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: control.send(b"TERM"))
names = ("ROTA_GUARDIAN_FD", "ROTA_GUARDIAN_KILL_FD", "ROTA_KEEPER_FD")
descriptors = [int(os.environ[name]) for name in names]
socket.send_fds(control, [b"ready"], descriptors)
for descriptor in descriptors:
    os.close(descriptor)
while request := control.recv(4096):
    if request.isdigit():
        sys.exit(int(request))
    subprocess.run(request, shell=True, check=True)
