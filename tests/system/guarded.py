"""A real guardian in the hands of a test."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.guardian import NamespaceWish, guardian_command

WORKER = Path(__file__).with_name("guardian_worker.py")
PATIENCE_SECONDS = 20.0
MARK = "ROTA_TEST_MARK"

Message = dict[str, Any]


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def eventually(claim: Callable[[], object], what: str = "it did not come true") -> None:
    """Looks until the claim holds."""
    end = boottime() + PATIENCE_SECONDS
    while not claim():
        assert boottime() < end, what
        threading.Event().wait(0.005)


def marked(mark: str) -> list[int]:
    """The living processes that carry the mark in their environment or command line."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _carries(path, mark)]


def _carries(process: Path, mark: str) -> bool:
    with suppress(OSError):
        for name in ("environ", "cmdline"):
            if mark.encode() in (process / name).read_bytes():
                return True
    return False


class Guarded:
    """A guardian, its fake worker, and the test in the worker's place at the socket."""

    def __init__(
        self,
        folder: Path,
        *,
        namespace: NamespaceWish = "auto",
        stop_grace: timedelta = timedelta(seconds=10),
        launcher: list[str] | None = None,
    ) -> None:
        self.mark = f"mark-{os.urandom(8).hex()}"
        self._heard: list[Message] = []
        self._pass_lifeline, self.lifeline = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(PATIENCE_SECONDS)
            listener.bind(str(folder / "control"))
            listener.listen()
            command = guardian_command(
                [sys.executable, str(WORKER), str(folder / "control")],
                namespace=namespace,
                parent_fd=self._pass_lifeline,
                stop_grace=stop_grace,
            )
            self.process = subprocess.Popen(
                [*(launcher or []), *command],
                pass_fds=[self._pass_lifeline],
                stderr=subprocess.PIPE,
                text=True,
            )
            self.control, _ = listener.accept()
        os.close(self._pass_lifeline)
        self._take_the_workers_place()

    def _take_the_workers_place(self) -> None:
        self.control.settimeout(PATIENCE_SECONDS)
        _, (channel, self.kill_switch), _, _ = socket.recv_fds(self.control, 16, 2)
        self.channel = socket.socket(fileno=channel)
        self.channel.settimeout(PATIENCE_SECONDS)
        credentials = self.control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.worker_pid = struct.unpack("3i", credentials)[0]
        self.inner_pid = parent_of(self.worker_pid)

    def send(self, *requests: object, fds: tuple[int, ...] = ()) -> None:
        self.send_raw(json.dumps(requests).encode(), fds)

    def send_raw(self, datagram: bytes, fds: tuple[int, ...] = ()) -> None:
        socket.send_fds(self.channel, [datagram], fds)

    def lease(self, seconds: float = 60.0) -> float:
        deadline = boottime() + seconds
        self.send({"do": "lease", "deadline": deadline})
        return deadline

    def spawn(
        self,
        key: str,
        *argv: str,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        fds: tuple[int, int] | None = None,
    ) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        environment = {"PATH": os.environ["PATH"], MARK: self.mark} if env is None else env
        request = {"do": "spawn", "key": key, "argv": argv, "cwd": cwd, "fds": 2}
        self.send({**request, "env": environment}, fds=fds or (null, null))
        os.close(null)

    def output_of(self, key: str, *argv: str, **options: Any) -> str:
        """Spawns, and reads what it prints until every writer is gone."""
        read, write = os.pipe()
        self.spawn(key, *argv, fds=(write, write), **options)
        os.close(write)
        with open(read) as file:
            return file.read()

    def heard(self, kind: str, key: str | None = None) -> Message:
        """The first such message not yet taken, waiting for it."""
        while True:
            for message in self._heard:
                if message["is"] == kind and message.get("key") == key:
                    self._heard.remove(message)
                    return message
            self._heard += json.loads(self.channel.recv(1 << 20))

    def run(self, key: str, *argv: str, **options: Any) -> Message:
        """Spawns and waits for the end of the whole tree."""
        self.spawn(key, *argv, **options)
        return self.heard("ended", key)

    def living(self) -> list[int]:
        return marked(self.mark)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def end_worker(self, status: int) -> None:
        self.control.send(bytes([status]))

    def close(self) -> None:
        os.close(self.lifeline) 
        self.process.communicate(timeout=PATIENCE_SECONDS)
        os.close(self.kill_switch)
        self.channel.close()
        self.control.close()
        eventually(lambda: not self.living(), "processes outlived their guardian")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
