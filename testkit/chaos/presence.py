"""Presence of a node when a fault began, and whether the others still have it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, TypeVar

from rota.api.workers import Server
from rota.domain.lease import SERVER_LEASE
from rota.sdk.client import Client
from testkit.chaos.client import AWAY, AnyServer
from testkit.nodes import ServerNode, WorkerNode
from testkit.waiting import eventually

T = TypeVar("T")

ARRIVING = timedelta(seconds=5)  # how long a node that was just started may take to be found


class Presence(Protocol):
    """Presence of a node; one that was not found at first has no end either."""

    def remember(self) -> None: ...

    def is_over(self) -> bool: ...


class Life:
    """One process of a server, as the other servers report it."""

    def __init__(
        self, node: ServerNode, observer: AnyServer, patience: timedelta = ARRIVING
    ) -> None:
        self._name = node.name
        self._observer = observer
        self._others = observer.besides(node.url)
        self._patience = patience
        self._id = ""

    def remember(self) -> None:
        found = _find(lambda: _newest(self._observer, self._name), self._patience)
        self._id = found.id if found else ""

    def is_over(self) -> bool:
        return self._is_left(0.0)

    def is_silent(self) -> bool:
        """Return whether a renewal is missing: one comes with each third of the lease."""
        return self._is_left(SERVER_LEASE.total_seconds() / 2)

    def _is_left(self, at_most: float) -> bool:
        """Return whether no more than so many seconds of its lease are left."""
        if not self._id:
            return False
        try:
            found = self._others.send(Client.list_servers())
        except AWAY:
            return False
        left = {each.id: each.lease_left_seconds for each in found}
        return left.get(self._id, 0.0) <= at_most


class Shards:
    """Shards that a server owned."""

    def __init__(self, server: str, observer: AnyServer) -> None:
        self._server = server
        self._observer = observer
        self._owner = ""
        self.count = 0

    def remember(self) -> None:
        found = _find(self._firing, ARRIVING)
        if found:
            self._owner, self.count = found.id, found.shards

    def _firing(self) -> Server | None:
        found = _newest(self._observer, self._server)
        return found if found and found.shards else None

    def are_taken(self) -> bool:
        if not self.count:
            return False
        try:
            shards = self._observer.send(Client.list_shards())
        except AWAY:
            return False
        return all(shard.owner not in (None, self._owner) for shard in shards)


class Session:
    """Session of a worker."""

    def __init__(self, node: WorkerNode, observer: AnyServer) -> None:
        self._worker = node.name
        self._observer = observer
        self._id = ""

    def remember(self) -> None:
        self._id = _find(self._session, ARRIVING) or ""

    def _session(self) -> str | None:
        found = self._observer.send(Client.list_workers())
        return next((each.id for each in found if each.worker == self._worker), None)

    def is_over(self) -> bool:
        if not self._id:
            return False
        try:
            return self._id not in {each.id for each in self._observer.send(Client.list_workers())}
        except AWAY:
            return False


def _newest(observer: AnyServer, name: str) -> Server | None:
    """Return the server of this name; its previous process may not have expired yet."""
    lives = [each for each in observer.send(Client.list_servers()) if each.name == name]
    return max(lives, key=lambda each: each.lease_left_seconds, default=None)


def _find(ask: Callable[[], T | None], patience: timedelta) -> T | None:
    """Return the first answer within that time; None: nobody knows it."""

    def answer() -> T | None:
        with suppress(*AWAY):
            return ask()
        return None

    with suppress(AssertionError):
        return eventually(answer, patience)
    return None
