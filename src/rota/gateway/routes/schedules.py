"""Schedules that belong to no job yet."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

from rota.domain.spec import Schedule
from rota.gateway.shapes.preview import PreviewShape
from rota.gateway.wiring import UsedBackends, api_router
from rota.operations.previewing import preview

router = api_router("schedules")


@router.get("/schedule/preview")
async def preview_schedule(
    backends: UsedBackends,
    expression: Annotated[list[str], Query(description="cron, interval or time; repeatable")],
    timezone: Annotated[str, Query(max_length=100)] = "UTC",
    start: Annotated[AwareDatetime | None, Query(alias="from")] = None,
    count: Annotated[int, Query(ge=1, le=100)] = 5,
) -> PreviewShape:
    """A schedule in words, and its next due times."""
    after = start or await backends.store.now()
    schedule = Schedule(tuple(expression), timezone)
    return PreviewShape.of(await asyncio.to_thread(preview, schedule, after, count))
