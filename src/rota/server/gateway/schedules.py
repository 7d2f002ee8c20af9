"""Schedules that belong to no job yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from rota.api.jobs import ClockChange, SchedulePreview
from rota.domain.schedule import Explanation, explain
from rota.domain.schedule.explanation import MOST_EXPLAINED
from rota.domain.spec import Dst, Fold, Gap, Schedule
from rota.server.gateway.answers import fill, problem_answers
from rota.server.gateway.parameters import (
    NAME,
    FromQuery,
    Project,
    UsedEngine,
    api_router,
    looking_ahead,
    read_times,
    zone_named,
)

router = api_router("schedules")


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a schedule's meaning depends on besides its text."""

    timezone: Annotated[str, Query(max_length=100)] = "UTC"
    gap: Annotated[Gap, Query(description="a time that does not exist")] = Gap.RUN_AFTER
    fold: Annotated[Fold, Query(description="a time that comes twice")] = Fold.FIRST
    job: Annotated[str | None, Query(pattern=NAME, description="the name that `H` depends on")] = (
        None
    )


def preview_answer(explained: Explanation) -> SchedulePreview:
    return fill(
        SchedulePreview,
        explained,
        next=tuple(time.at for time in explained.next),
        warnings=problem_answers(explained.warnings),
        clock_changes=tuple(fill(ClockChange, it) for it in explained.clock_changes),
    )


@router.get("/schedule/preview")
async def preview_schedule(
    engine: UsedEngine,
    project: Project,
    expression: Annotated[list[str], Query(description="cron, interval or time; repeatable")],
    setting: Annotated[_Setting, Depends()],
    start: FromQuery = None,
    count: Annotated[int, Query(ge=1, le=MOST_EXPLAINED)] = 5,
) -> SchedulePreview:
    """A schedule in words, and its next due times."""
    now = await engine.store.now()
    reading = looking_ahead(now, zone_named(setting.timezone))
    [after] = read_times(reading, {"from": start}, code="malformed")
    schedule = Schedule(tuple(expression), setting.timezone, Dst(setting.gap, setting.fold))
    explained = await asyncio.to_thread(
        explain,
        schedule,
        key="" if setting.job is None else f"{project}/{setting.job}",
        after=after or now,
        count=count,
    )
    return preview_answer(explained)
