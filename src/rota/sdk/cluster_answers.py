"""What the server answers about workers, servers and shards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rota.sdk.answers import Answer


class Worker(Answer, frozen=True, kw_only=True):
    """A live or past presence of a worker."""

    id: str
    worker: str = ""
    state: str = ""  # alive, draining, stopping, gone
    pool: str = ""
    slots: int = 0
    running: int = 0  # attempts it holds now
    labels: Mapping[str, str] = {}
    resources: Mapping[str, str] = {}  # what it offers, as job files write it: 4, 0.5, 8GiB
    used: Mapping[str, str] = {}  # what the attempts it holds take of these
    functions: tuple[str, ...] = ()
    guard_mode: str = ""
    version: str = ""
    server: str = ""  # id of the one it talks to
    draining: bool = False  # it gets nothing new until it is resumed
    lease: str = ""
    registered_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def alive(self) -> bool:
        return self.state == "alive"


class Server(Answer, frozen=True, kw_only=True):
    """One life of a server process."""

    id: str
    name: str = ""
    state: str = ""  # alive, stopping, gone
    url: str = ""
    roles: tuple[str, ...] = ()
    zone: str = ""
    version: str = ""
    lease: str = ""
    lease_left_seconds: float = 0.0
    shards: int = 0  # how many it fires
    started_at: datetime | None = None
    expires_at: datetime | None = None


class Shard(Answer, frozen=True, kw_only=True):
    """A part of all jobs, fired by one server."""

    number: int
    owner: str | None = None  # id of a server
    epoch: int = 0  # how often it was taken
    taken_at: datetime | None = None


class PoolQueue(Answer, frozen=True, kw_only=True):
    pool: str
    queued: int = 0  # runs that wait for a worker
    oldest_queued_at: datetime | None = None


class Cluster(Answer, frozen=True, kw_only=True):
    """How the cluster stands."""

    now: datetime
    servers: tuple[Server, ...] = ()
    shards: int = 0
    shards_owned: int = 0
    oldest_due_at: datetime | None = None  # due and not fired
    overdue_seconds: float = 0.0
    queues: tuple[PoolQueue, ...] = ()
