"""Workers, as the store knows them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from rota.operations import workers
from rota.server.gateway.auth import Operator
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.shapes.worker import WorkerShape
from rota.server.gateway.wiring import UsedBackends, api_router

WorkerName = Annotated[str, Path(max_length=200, description="name of a worker")]

router = api_router("workers")


@router.get("/workers")
async def list_workers(
    backends: UsedBackends,
    every: Annotated[bool, Query(alias="all", description="past sessions too")] = False,
) -> Listing[WorkerShape]:
    """Workers that are alive, the newest first."""
    sessions = await backends.store.sessions(alive_only=not every)
    return Listing(items=[WorkerShape.of(session) for session in sessions])


@router.post("/workers/{worker}/drain")
async def drain_worker(
    actor: Operator, backends: UsedBackends, worker: WorkerName
) -> Listing[WorkerShape]:
    """Let a worker finish what it holds and give it nothing new, also after a restart."""
    await workers.drain(backends, worker, actor=actor.name)
    return await _presences(backends, worker)


@router.post("/workers/{worker}/resume")
async def resume_worker(
    actor: Operator, backends: UsedBackends, worker: WorkerName
) -> Listing[WorkerShape]:
    """Give a drained worker work again."""
    await workers.undrain(backends, worker, actor=actor.name)
    return await _presences(backends, worker)


async def _presences(backends: UsedBackends, worker: str) -> Listing[WorkerShape]:
    sessions = await backends.store.sessions(alive_only=True)
    return Listing(items=[WorkerShape.of(each) for each in sessions if each.worker == worker])
