"""What the server answers about workers, servers and shards."""

from __future__ import annotations

from rota.api.workers import Cluster, PoolQueue, Server, Shard, Worker

__all__ = [
    "Cluster",
    "PoolQueue",
    "Server",
    "Shard",
    "Worker",
]
