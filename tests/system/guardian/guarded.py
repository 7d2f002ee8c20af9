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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.guardian import NamespaceWish, guardian_command

WORKER = Path(__file__).with_name("fake_worker.py")
PATIENCE_SECONDS = 20.0
MARK_VARIABLE = "ROTA_TEST_MARK"

Message = dict[str, Any]

# Each leaves processes behind that escape simpler ways of finding them, once the file is there.
DAEMONS = {
    "background": "sh -c 'touch up; sleep 100' &",
    "deaf to TERM": "sh -c 'trap \"\" TERM; touch up; while :; do sleep 1; done' &",
    "own session": "setsid sh -c 'touch up; sleep 100' &",
    "twice forked": "(setsid sh -c 'trap \"\" TERM; touch up; sleep 100 & sleep 100' &)",
    "without environment": "(env -i setsid sh -c 'touch up; sleep 100 & : MARK; sleep 100' &)",
    "with family": "(setsid sh -c 'sleep 100 & (setsid sh -c \"touch up; sleep 100\" &) & wait' &)",
}
ALL_DAEMONS = "\n".join(DAEMONS.values())


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def eventually(claim: Callable[[], object], otherwise: str) -> None:
    """Looks until the claim holds."""
    end = boottime() + PATIENCE_SECONDS
    while not claim():
        assert boottime() < end, otherwise
        threading.Event().wait(0.005)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state_of(pid: int) -> str:
    """As `ps` shows it: T is stopped; "" when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def life_of(inner: int) -> str:
    """The name of the control groups of this guardian; "" where it may make none."""
    for line in Path(f"/proc/{inner}/cgroup").read_text().splitlines():
        if line.startswith("0::") and "/rota-" in line:
            return line.split("/")[-2]
    return ""


def groups_of(life: str) -> list[Path]:
    """Its control groups, of all hierarchies."""
    folders = [
        Path(folder, each) for folder, below, _ in os.walk("/sys/fs/cgroup") for each in below
    ]
    return [folder for folder in folders if folder.name == life]


def marked(mark: str) -> list[int]:
    """The living processes that carry the mark in their environment or command line."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _carries(path, mark)]


def _carries(process: Path, mark: str) -> bool:
    with suppress(OSError):
        return any(
            mark.encode() in (process / name).read_bytes() for name in ("environ", "cmdline")
        )
    return False


class Guarded:
    """A guardian, its fake worker, and the test in the worker's place at the socket."""

    def __init__(
        self,
        folder: Path,
        namespace: NamespaceWish,
        stop_grace: timedelta = timedelta(seconds=10),
        launcher: Sequence[str] = (),
        name: str = "",
    ) -> None:
        self.mark = f"mark-{os.urandom(8).hex()}"
        self._heard: list[Message] = []
        self._folder = folder
        self._control_path = str(folder / f"control-{self.mark[-8:]}")
        self._lifeline: int | None = None
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(PATIENCE_SECONDS)
            listener.bind(self._control_path)
            listener.listen()
            self.process = self._launch(launcher, namespace, stop_grace, name)
            self._control, _ = listener.accept()
        self._take_the_workers_place()

    def _launch(
        self, launcher: Sequence[str], namespace: NamespaceWish, stop_grace: timedelta, name: str
    ) -> subprocess.Popen[str]:
        parent_fd, self._lifeline = os.pipe()
        command = guardian_command(
            [sys.executable, str(WORKER), self._control_path],
            namespace=namespace,
            parent_fd=parent_fd,
            name=name,
            stop_grace=stop_grace,
        )
        process = subprocess.Popen(
            [*launcher, *command], pass_fds=[parent_fd], stderr=subprocess.PIPE, text=True
        )
        os.close(parent_fd)
        return process

    def _take_the_workers_place(self) -> None:
        self._control.settimeout(PATIENCE_SECONDS)
        _, fds, _, _ = socket.recv_fds(self._control, 16, 3)
        channel, self.kill_switch, keeper = fds
        self._channel = socket.socket(fileno=channel)
        self._channel.settimeout(PATIENCE_SECONDS)
        self._keeper = socket.socket(fileno=keeper)
        self._keeper.settimeout(PATIENCE_SECONDS)
        credentials = self._control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.worker_pid = int(struct.unpack("3i", credentials)[0])
        self.inner_pid = parent_of(self.worker_pid)
        self.outer_pid = parent_of(self.inner_pid)
        self.life = life_of(self.inner_pid)
        [self.keeper_pid] = [pid for pid in children_of(self.outer_pid) if pid != self.inner_pid]

    def ask_keeper(self, do: str, name: str, **fields: object) -> str:
        """Returns what it says is wrong."""
        self._keeper.send(json.dumps({"id": 1, "do": do, "name": name, **fields}).encode())
        return str(json.loads(self._keeper.recv(1 << 16))["error"])

    def send(self, *requests: object, fds: Sequence[int] = ()) -> None:
        self.send_raw(json.dumps(requests).encode(), fds)

    def send_raw(self, datagram: bytes, fds: Sequence[int] = ()) -> None:
        socket.send_fds(self._channel, [datagram], list(fds))

    def lease(self, seconds: float = 60.0) -> float:
        deadline = boottime() + seconds
        self.send({"do": "lease", "deadline": deadline})
        return deadline

    def connection(self) -> tuple[socket.socket, int]:
        """What a worker is given: its own end of the channel, and the kill switch."""
        return self._channel.dup(), self.kill_switch

    def spawn_request(
        self,
        key: str,
        *argv: str,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        **fields: object,
    ) -> Message:
        environment = {"PATH": os.environ["PATH"], MARK_VARIABLE: self.mark, **(env or {})}
        request = {"do": "spawn", "fds": 2, "key": key, "argv": argv, "env": environment}
        return {**request, "cwd": cwd, **fields}

    def spawn(self, key: str, *argv: str, **options: Any) -> None:
        with Path(os.devnull).open("w") as null:
            request = self.spawn_request(key, *argv, **options)
            self.send(request, fds=[null.fileno(), null.fileno()])

    def output_of(self, key: str, *argv: str, **options: Any) -> tuple[str, str]:
        """Spawns, and reads standard output and error until every writer is gone."""
        pipes = [os.pipe(), os.pipe()]
        request = self.spawn_request(key, *argv, **options)
        self.send(request, fds=[write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        files = [os.fdopen(read) for read, _ in pipes]
        stdout, stderr = (file.read() for file in files)
        for file in files:
            file.close()
        return stdout, stderr

    def heard(self, kind: str, key: str | None = None) -> Message:
        """The first such message not yet taken, waiting for it."""
        while True:
            for message in self._heard:
                if message["is"] == kind and message.get("key") == key:
                    self._heard.remove(message)
                    return message
            self._heard += json.loads(self._channel.recv(1 << 20))

    def run(self, key: str, *argv: str, **options: Any) -> Message:
        """Spawns and waits for the end of the whole tree."""
        self.spawn(key, *argv, **options)
        return self.heard("ended", key)

    def start_daemons(self) -> None:
        """Spawns a tree with daemons of every kind, and waits until they live."""
        script = ALL_DAEMONS.replace("MARK", self.mark)
        self.spawn("daemons", "sh", "-c", f"{script}\nsleep 100", cwd=str(self._folder))
        eventually(lambda: len(self.living()) >= 12, "the daemons did not start")

    def living(self) -> list[int]:
        return marked(self.mark)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def end_worker(self, status: int) -> None:
        self._control.send(str(status).encode())

    def start_from_worker(self, script: str) -> None:
        self._control.send(script.encode())

    def worker_got_term(self) -> bool:
        return self._control.recv(16) == b"TERM"

    def cut_lifeline(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def close(self) -> None:
        self.cut_lifeline()
        for pid in (self.outer_pid, self.inner_pid, self.worker_pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.process.communicate(timeout=PATIENCE_SECONDS)
        os.close(self.kill_switch)
        self._channel.close()
        self._control.close()
        self._keeper.close()
        eventually(lambda: not self.living(), "processes outlived their guardian")
        eventually(lambda: not groups_of(self.life), "control groups outlived their guardian")
