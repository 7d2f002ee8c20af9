"""Workers, servers, shards, and how far behind the cluster is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from rota.api.answers import UNSENT, Answer, Instant, one_of

WorkerState = Annotated[
    str, one_of("Whether a worker takes runs.", "alive", "draining", "stopping", "revoked", "gone")
]
ServerState = Annotated[str, one_of("Whether a server works.", "alive", "stopping", "gone")]


class Offer(Answer, frozen=True, kw_only=True):
    """Something that a worker tried at its start, and whether it has it."""

    kind: str  # type (of jobs), wall or capability
    name: str = ""
    reason: str = ""  # why it does not have it; empty: it has it


class Worker(Answer, frozen=True, kw_only=True):
    """A live or past presence of a worker."""

    id: str
    worker: str = ""
    state: WorkerState = ""
    pool: str = ""
    slots: int = 0
    running: int = 0  # attempts it holds now
    labels: Mapping[str, str] = {}
    resources: Mapping[str, str] = {}  # what it offers, as job files write it: 4, 0.5, 8GiB
    used: Mapping[str, str] = {}  # what the attempts it holds take of these
    functions: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()  # by its latest hello
    trouble: str = ""  # what it cannot do at present, in its own words; empty: nothing
    guard_mode: str = ""
    version: str = ""
    server: str = ""  # id of the one it talks to
    draining: bool = False  # it gets nothing new until it is resumed
    lease: str = ""
    credential: str | None = None  # id of the token it showed; None: it came by the local socket
    credential_expires_at: Instant | None = None  # None: never, or there is none
    registered_at: Instant = UNSENT
    expires_at: Instant = UNSENT

    @property
    def alive(self) -> bool:
        return self.state == "alive"


class JobType(Answer, frozen=True, kw_only=True):
    """A type of jobs: one that Rota brings, or one of a plug-in that a worker has ever offered."""

    name: str
    is_built_in: bool = False
    workers: tuple[str, ...] = ()  # that offer it now
    lacking: Mapping[str, str] = {}  # workers that name it but do not have it, with their reasons
    api_version: int = 0  # of its plug-in; 0: not told
    schema: Mapping[str, Any] | None = None  # JSON Schema of `parameters`; null: it has none
    offered_at: Instant | None = (
        None  # when a worker told this of it; null: Rota brings it, or none had it yet
    )


class Server(Answer, frozen=True, kw_only=True):
    """One life of a server process."""

    id: str
    name: str = ""
    state: ServerState = ""
    url: str = ""
    roles: tuple[str, ...] = ()
    zone: str = ""
    version: str = ""
    lease: str = ""
    lease_left_seconds: float = 0.0  # 0: it is over
    shards: int = 0  # how many it fires
    started_at: Instant = UNSENT
    expires_at: Instant = UNSENT


class Shard(Answer, frozen=True, kw_only=True):
    """A part of all jobs, fired by one server."""

    number: int
    owner: str | None = None  # id of a server; None: nobody
    epoch: int = 0  # how often it was taken
    taken_at: Instant | None = None


class PoolQueue(Answer, frozen=True, kw_only=True):
    pool: str
    queued: int = 0  # runs that wait for a worker
    oldest_queued_at: Instant | None = None  # None: none waits


class Cluster(Answer, frozen=True, kw_only=True):
    """How the cluster stands."""

    now: Instant  # by the store's clock
    servers: tuple[Server, ...] = ()  # that are alive, the newest first
    shards: int = 0
    shards_owned: int = 0  # the rest is fired by nobody yet
    oldest_due_at: Instant | None = None  # due and not fired; None: nothing is
    overdue_seconds: float = 0.0
    queues: tuple[PoolQueue, ...] = ()
