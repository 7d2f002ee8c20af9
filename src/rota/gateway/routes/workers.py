"""Workers, as the store knows them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rota.gateway.shapes.models import Listing
from rota.gateway.shapes.worker import WorkerShape
from rota.gateway.wiring import UsedBackends, api_router

router = api_router("workers")


@router.get("/workers")
async def list_workers(
    backends: UsedBackends,
    every: Annotated[bool, Query(alias="all", description="past sessions too")] = False,
) -> Listing[WorkerShape]:
    """Workers that are alive, the newest first."""
    sessions = await backends.store.sessions(alive_only=not every)
    return Listing(items=[WorkerShape.of(session) for session in sessions])
