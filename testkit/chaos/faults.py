"""The fault protocol, and the faults of Rota's own processes."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta

from testkit.chaos.client import AnyServer
from testkit.chaos.presence import Life, Presence, Session, Shards
from testkit.nodes import Node, ServerNode, WorkerNode
from testkit.processes import processes_of

_STOPPING = timedelta(seconds=40)


class Fault(ABC):
    """Fault that is injected and healed again.

    `least` is how long it lasts at least; it is kept up until it was felt, within limits.
    """

    kind = ""
    least = timedelta(seconds=2)

    def __init__(self, target: str, *also: str) -> None:
        self.target = target
        self.touches = frozenset({target, *also})  # no other fault may touch these meanwhile

    @abstractmethod
    def inject(self) -> str:
        """Inject it; return what was done, for the log."""

    @abstractmethod
    def is_felt(self) -> bool:
        """Return whether the rest of the cluster shows an effect, or did so."""

    def heal(self) -> None:  # noqa: B027 - some faults heal by themselves
        """Undo it; recovery after that is up to the cluster."""


class KilledServer(Fault):
    """A server is killed; restarted, but not before its shards have other owners."""

    kind = "server killed"

    def __init__(self, node: ServerNode, observer: AnyServer) -> None:
        super().__init__(node.name)
        self._node = node
        self._shards = Shards(node.name, observer)

    def inject(self) -> str:
        self._shards.remember()
        self._node.process.kill()
        self._node.process.wait()
        return f"with {self._shards.count} shards"

    def is_felt(self) -> bool:
        return self._shards.are_taken()

    def heal(self) -> None:
        self._node.launch()


class UsurpedServer(Fault):
    """A server is suspended until others own all its shards, then resumes."""

    kind = "shards taken from a stopped server"

    def __init__(self, node: ServerNode, observer: AnyServer) -> None:
        super().__init__(node.name)
        self._node = node
        self._shards = Shards(node.name, observer)

    def inject(self) -> str:
        self._shards.remember()
        self._node.freeze()
        return f"with {self._shards.count} shards"

    def is_felt(self) -> bool:
        return self._shards.are_taken()

    def heal(self) -> None:
        self._node.thaw()


class StoppedServer(Fault):
    """A server is suspended until it has missed a renewal of its lease; mostly keeps its shards."""

    kind = "server stopped for a while"

    def __init__(self, node: ServerNode, observer: AnyServer) -> None:
        super().__init__(node.name)
        self._node = node
        self._life = Life(node, observer)

    def inject(self) -> str:
        self._life.remember()
        self._node.freeze()
        return ""

    def is_felt(self) -> bool:
        return self._life.is_silent()

    def heal(self) -> None:
        self._node.thaw()


class RestartedNode(Fault):
    """A node is asked to stop, which it must do cleanly, and started again."""

    least = timedelta(0)

    def __init__(self, node: Node, presence: Presence) -> None:
        super().__init__(node.name)
        self.kind = f"{node.name.partition('-')[0]} restarted"
        self._node = node
        self._presence = presence
        self._exit_code: int | None = None

    def inject(self) -> str:
        self._presence.remember()
        self._exit_code = self._node.stop(_STOPPING)
        return f"ended with {self._exit_code}"

    def is_felt(self) -> bool:
        return self._exit_code == 0 and self._presence.is_over()

    def heal(self) -> None:
        Node.launch(self._node)  # a worker's own would ask a server, which may be away


def restarted_server(node: ServerNode, observer: AnyServer) -> Fault:
    return RestartedNode(node, Life(node, observer))


def restarted_worker(node: WorkerNode, observer: AnyServer) -> Fault:
    return RestartedNode(node, Session(node, observer))


class KilledProcess(Fault):
    """One process of a worker is killed, or all of them with the first."""

    least = timedelta(0)

    def __init__(
        self, node: WorkerNode, observer: AnyServer, part: Callable[[WorkerNode], int], name: str
    ) -> None:
        super().__init__(node.name)
        self.kind = f"{name} killed"
        self._node = node
        self._part = part
        self._session = Session(node, observer)

    def inject(self) -> str:
        self._session.remember()
        pid = self._part(self._node)
        os.kill(pid, signal.SIGKILL)
        return f"pid {pid}"

    def is_felt(self) -> bool:
        return self._session.is_over()

    def heal(self) -> None:
        if not self._node.is_running:
            Node.launch(self._node)


WHOLE_WORKER = "whole worker"


class StoppedProcesses(Fault):
    """Processes of a worker are suspended until its session has ended."""

    def __init__(
        self,
        node: WorkerNode,
        observer: AnyServer,
        parts: Callable[[WorkerNode], Iterable[int]],
        name: str,
    ) -> None:
        super().__init__(node.name)
        self.kind = f"{name} stopped"
        self._node = node
        self._parts = parts
        self._stopped: list[int] = []
        self._session = Session(node, observer)

    def inject(self) -> str:
        self._session.remember()
        for pid in self._parts(self._node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._stopped.append(pid)
        return f"{len(self._stopped)} processes"

    def is_felt(self) -> bool:
        return self._session.is_over()

    def heal(self) -> None:
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def whole_tree(node: WorkerNode) -> list[int]:
    """Return the pids of a worker, its guardian and all its jobs, as if the machine froze."""
    return processes_of(node.home)
