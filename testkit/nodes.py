"""Servers and workers of a cluster as real processes: started, stopped, suspended, killed."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx

from rota.sdk.client import Client
from testkit.processes import ROTA, children_of, cmdline, environment, inner_of, processes_of
from testkit.waiting import PATIENCE, eventually

_WORKER = b"rota.runtime.worker_process"


class Node(ABC):
    """`rota` process with a data folder of its own, which keeps its settings over restarts."""

    def __init__(
        self, name: str, home: Path, command: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.home = home
        self.log = home.with_name(f"{home.name}.log")  # what it printed, over all its starts
        self.command = [str(ROTA), *command]
        self.environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start it without waiting for anything."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                env=self.environ,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @abstractmethod
    def wait_until_ready(self) -> None:
        """Wait until it is ready."""

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def stop(self, within: timedelta = PATIENCE) -> int:
        """Stop it; return its exit code. No process that it ever started may be left then."""
        self.process.terminate()
        code = self.process.wait(within.total_seconds())
        assert not processes_of(self.home), f"processes outlived {self.name}"
        return code

    def restart(self) -> None:
        """Stop it, start it, and wait until it is ready."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill it; wait until none of its processes is left."""
        self.process.kill()
        self.process.wait()
        eventually(lambda: not processes_of(self.home), otherwise=f"processes outlived {self.name}")

    def freeze(self) -> None:
        """Suspend it, with all its processes still there."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill all its processes, whatever state it is in."""
        for pid in processes_of(self.home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def printed(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def check_running(self) -> None:
        """Fail with its output if it has ended."""
        if not self.is_running:
            raise ChildProcessError(f"{self.name} ended:\n{self.printed()}")


class ServerNode(Node):
    """`rota server`, on ports that stay the same."""

    def __init__(self, name: str, home: Path, ports: tuple[int, int], **settings: str) -> None:
        rest, grpc = ports
        self.url = f"http://127.0.0.1:{rest}"
        self.grpc = f"127.0.0.1:{grpc}"
        told = {
            "listen": f"127.0.0.1:{rest}",
            "grpc_listen": self.grpc,
            "server_name": name,
            "default_isolation": "process",  # tests of walls say what they want
        }
        super().__init__(name, home, ["server"], environment(home, **(told | settings)))

    def wait_until_ready(self) -> None:
        eventually(self._is_ready, otherwise=f"{self.name} did not get ready:\n{self.printed()}")

    def _is_ready(self) -> bool:
        self.check_running()
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False


class WorkerNode(Node):
    """`rota worker`; `client` is one that can tell whether it has arrived."""

    def __init__(self, name: str, home: Path, client: Client, **settings: str) -> None:
        super().__init__(
            name, home, ["worker"], environment(home, **({"worker_name": name} | settings))
        )
        self._client = client
        self._earlier: frozenset[str] = frozenset()  # sessions of its earlier lives

    def launch(self) -> None:
        self._earlier = frozenset(self._sessions())
        super().launch()

    def wait_until_ready(self) -> None:
        eventually(self._has_arrived, otherwise=f"{self.name} did not register:\n{self.printed()}")

    def _has_arrived(self) -> bool:
        self.check_running()
        return bool(self._sessions() - self._earlier)

    def _sessions(self) -> set[str]:
        return {each.id for each in self._client.list_workers() if each.worker == self.name}

    @property
    def guardian_pids(self) -> tuple[int, int]:
        """Return the pids of the outer guardian process and the inner one."""
        [outer] = children_of(self.pid)
        return outer, inner_of(outer)

    @property
    def worker_pid(self) -> int:
        """Return the pid of the worker process inside the guardian."""
        _, inner = self.guardian_pids
        return next(pid for pid in children_of(inner) if _WORKER in cmdline(pid))
