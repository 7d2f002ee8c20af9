"""Servers, shards, and how far behind the cluster is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from rota.domain.quantities import format_duration
from rota.domain.shards import Server, Shard
from rota.operations.status import ClusterStatus, PoolQueue
from rota.server.gateway.shapes.models import Answer

ServerState = Literal["alive", "stopping", "gone"]


class ServerShape(Answer):
    """One life of a server process."""

    id: str
    name: str
    state: ServerState
    url: str
    roles: list[str]
    zone: str
    version: str
    lease: str
    lease_left_seconds: float  # 0: it is over
    shards: int  # how many it fires
    started_at: datetime
    expires_at: datetime

    @classmethod
    def of(cls, server: Server, shards: int, now: datetime) -> ServerShape:
        left = max(timedelta(0), server.expires_at - now)
        return cls(
            id=server.id,
            name=server.name,
            state=_state(server, now),
            url=server.url,
            roles=list(server.roles),
            zone=server.zone,
            version=server.version,
            lease=format_duration(server.lease),
            lease_left_seconds=left.total_seconds(),
            shards=shards,
            started_at=server.started_at,
            expires_at=server.expires_at,
        )


def _state(server: Server, now: datetime) -> ServerState:
    if not server.is_live(now):
        return "gone"
    return "stopping" if server.stopping else "alive"


class ShardShape(Answer):
    """A part of all jobs, fired by one server."""

    number: int
    owner: str | None  # id of a server; None: nobody
    epoch: int  # how often it was taken
    taken_at: datetime | None

    @classmethod
    def of(cls, shard: Shard) -> ShardShape:
        return cls.model_validate(shard)


class PoolQueueShape(Answer):
    pool: str
    queued: int  # runs that wait for a worker
    oldest_queued_at: datetime | None

    @classmethod
    def of(cls, queue: PoolQueue) -> PoolQueueShape:
        return cls.model_validate(queue)


class ClusterShape(Answer):
    """How the cluster stands."""

    now: datetime  # by the store's clock
    servers: list[ServerShape]  # that are alive, the newest first
    shards: int
    shards_owned: int  # the rest is fired by nobody yet
    oldest_due_at: datetime | None  # due and not fired; None: nothing is
    overdue_seconds: float
    queues: list[PoolQueueShape]

    @classmethod
    def of(cls, status: ClusterStatus) -> ClusterShape:
        overdue = status.now - status.oldest_due_at if status.oldest_due_at else timedelta(0)
        return cls(
            now=status.now,
            servers=[each for each in server_shapes(status) if each.state != "gone"],
            shards=len(status.shards),
            shards_owned=sum(status.shards_of().values()),
            oldest_due_at=status.oldest_due_at,
            overdue_seconds=overdue.total_seconds(),
            queues=[PoolQueueShape.of(queue) for queue in status.queues],
        )


def server_shapes(status: ClusterStatus) -> list[ServerShape]:
    """Every server of the last day."""
    owned = status.shards_of()
    return [ServerShape.of(each, owned.get(each.id, 0), status.now) for each in status.servers]
