"""Workers, servers, shards, and the lag of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Path, Query

from rota.api import workers as api
from rota.api.answers import Page
from rota.domain.quantities import format_duration
from rota.domain.resources import Vector, format_amount
from rota.domain.shards import Server
from rota.operations import credentials
from rota.operations.engine import Engine
from rota.operations.job_types import job_type, job_types
from rota.operations.tenants import seen_status, seen_workers, sight_of
from rota.operations.workers import ClusterStatus, cluster_status
from rota.ports.records import Session
from rota.server.gateway.auth import (
    InstallationAdmin,
    InstallationOperator,
    InstallationViewer,
    Member,
)
from rota.server.gateway.parameters import UsedEngine, api_router
from rota.server.gateway.routing import fill

WorkerName = Annotated[str, Path(max_length=200, description="name of a worker")]

TypeName = Annotated[str, Path(max_length=63, description="name of a type of jobs")]

router = api_router("workers")
types_router = api_router("job types")
cluster_router = api_router("cluster")


def worker_answer(session: Session) -> api.Worker:
    return fill(
        api.Worker,
        session,
        state=_worker_state(session),
        running=session.held,
        resources=_amounts(session.resources, session.resources),
        used=_amounts(session.resources, session.used),
        offers=tuple(fill(api.Offer, offer) for offer in session.offers),
        lease=format_duration(session.lease),
    )


def _amounts(names: Iterable[str], amounts: Vector) -> dict[str, str]:
    return {name: format_amount(name, amounts.get(name, 0)) for name in names}


def _worker_state(session: Session) -> str:
    if not session.alive:
        return "gone"
    if session.barred:
        return "revoked"
    if session.stopping:
        return "stopping"
    return "draining" if session.draining else "alive"


def cluster_answer(status: ClusterStatus) -> api.Cluster:
    overdue = status.now - status.oldest_due_at if status.oldest_due_at else timedelta(0)
    return fill(
        api.Cluster,
        status,
        servers=tuple(each for each in server_answers(status) if each.state != "gone"),
        shards=len(status.shards),
        shards_owned=sum(status.shards_of().values()),
        overdue_seconds=overdue.total_seconds(),
        queues=tuple(fill(api.PoolQueue, queue) for queue in status.queues),
    )


def server_answers(status: ClusterStatus) -> list[api.Server]:
    """Build the answers of all servers of the last day."""
    owned = status.shards_of()
    return [_server_answer(each, owned.get(each.id, 0), status.now) for each in status.servers]


def _server_answer(server: Server, shards: int, now: datetime) -> api.Server:
    left = max(timedelta(0), server.expires_at - now)
    return fill(
        api.Server,
        server,
        state=_server_state(server, now),
        lease=format_duration(server.lease),
        lease_left_seconds=left.total_seconds(),
        shards=shards,
    )


def _server_state(server: Server, now: datetime) -> str:
    if not server.is_live(now):
        return "gone"
    return "stopping" if server.stopping else "alive"


@router.get("/workers")
async def list_workers(
    caller: Member,
    engine: UsedEngine,
    every: Annotated[bool, Query(alias="all", description="past sessions too")] = False,
) -> Page[api.Worker]:
    """Workers that are alive, the newest first.

    Without a role in the installation, those of pools that your projects may use.
    """
    sight = await sight_of(engine, caller.projects)
    found = await engine.store.sessions(alive_only=not every)
    sessions = await seen_workers(engine, sight, found)
    return Page(items=tuple(map(worker_answer, sessions)))


@router.post("/workers/{worker}/drain")
async def drain_worker(
    actor: InstallationOperator, engine: UsedEngine, worker: WorkerName
) -> Page[api.Worker]:
    """Let a worker finish what it holds and give it nothing new, also after a restart."""
    await engine.store.drain_worker(worker, actor=actor.name)
    return await _presences(engine, worker)


@router.post("/workers/{worker}/resume")
async def resume_worker(
    actor: InstallationOperator, engine: UsedEngine, worker: WorkerName
) -> Page[api.Worker]:
    """Give a drained worker work again."""
    await engine.store.undrain_worker(worker, actor=actor.name)
    return await _presences(engine, worker)


@router.post("/workers/{worker}/revoke")
async def revoke_worker(
    actor: InstallationAdmin, engine: UsedEngine, worker: WorkerName
) -> Page[api.Worker]:
    """End all credentials of a worker: it gets nothing more, and loses all with its lease."""
    await credentials.revoke_worker(engine, worker, actor=actor.name)
    return await _presences(engine, worker)


async def _presences(engine: Engine, worker: str) -> Page[api.Worker]:
    sessions = await engine.store.sessions(alive_only=True)
    return Page(items=tuple(worker_answer(each) for each in sessions if each.worker == worker))


@types_router.get("/job-types")
async def list_job_types(caller: Member, engine: UsedEngine) -> Page[api.JobType]:
    """Types of jobs: those that Rota brings, then those of plug-ins that workers have ever offered.

    Without a role in the installation, those of workers of pools that your projects may use.
    """
    sight = await sight_of(engine, caller.projects)
    return Page(items=tuple(fill(api.JobType, each) for each in await job_types(engine, sight)))


@types_router.get("/job-types/{name}")
async def show_job_type(caller: Member, engine: UsedEngine, name: TypeName) -> api.JobType:
    """A type of jobs, with the JSON Schema of what its jobs give it."""
    sight = await sight_of(engine, caller.projects)
    return fill(api.JobType, await job_type(engine, sight, name))


@cluster_router.get("/cluster")
async def show_cluster(caller: Member, engine: UsedEngine) -> api.Cluster:
    """Servers that are alive, shards, schedules that are overdue, and what waits for workers.

    Without a role in the installation, only how late it is and what waits in pools with workers.
    """
    sight, served = await sight_of(engine, caller.projects), await engine.store.served_pools()
    return cluster_answer(seen_status(sight, await cluster_status(engine), served))


@cluster_router.get("/servers")
async def list_servers(
    caller: InstallationViewer,
    engine: UsedEngine,
    every: Annotated[bool, Query(alias="all", description="those of the last day too")] = False,
) -> Page[api.Server]:
    """Servers that are alive, the newest first."""
    found = server_answers(await cluster_status(engine))
    return Page(items=tuple(each for each in found if every or each.state != "gone"))


@cluster_router.get("/shards")
async def list_shards(caller: InstallationViewer, engine: UsedEngine) -> Page[api.Shard]:
    """Shards by number, with their owners and epochs."""
    return Page(items=tuple(fill(api.Shard, shard) for shard in await engine.store.shards()))
