"""Servers, shards, and how far behind the cluster is."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rota.operations.status import cluster_status
from rota.server.gateway.shapes.cluster import ClusterShape, ServerShape, ShardShape, server_shapes
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.wiring import UsedBackends, api_router

router = api_router("cluster")


@router.get("/cluster")
async def show_cluster(backends: UsedBackends) -> ClusterShape:
    """Servers that are alive, shards, schedules that are overdue, and what waits for workers."""
    return ClusterShape.of(await cluster_status(backends))


@router.get("/servers")
async def list_servers(
    backends: UsedBackends,
    every: Annotated[bool, Query(alias="all", description="those of the last day too")] = False,
) -> Listing[ServerShape]:
    """Servers that are alive, the newest first."""
    shapes = server_shapes(await cluster_status(backends))
    return Listing(items=[each for each in shapes if every or each.state != "gone"])


@router.get("/shards")
async def list_shards(backends: UsedBackends) -> Listing[ShardShape]:
    """Shards by number, with their owners and epochs."""
    return Listing(items=[ShardShape.of(shard) for shard in await backends.store.shards()])
