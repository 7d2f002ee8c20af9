"""A job that this release cannot read must not keep the others from their due times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.domain.ids import JobId
from rota.operations import pauses
from testkit.builders import new_job
from testkit.clock import START
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def define(timeline: Timeline, **fields: Any) -> JobId:
    """A job in a zone that is not known here. It comes before all others."""
    new = new_job("unreadable", START, next_at=START + HOUR - SECOND)
    document: Mapping[str, Any] = {
        **new.document,
        "schedule": "every 1h",
        "timezone": "Moon/Tycho",
        **fields,
    }
    await timeline.store.save_jobs([replace(new, document=document)], removed=(), actor="test")
    return new.id


async def test_the_others_fire(timeline: Timeline) -> None:
    await define(timeline)
    await timeline.apply("every 1h")
    timeline.be_down(HOUR)

    with capture_logs() as logs:
        await timeline.scheduler.run_once()
        await timeline.scheduler.run_once()

    assert await timeline.due_times() == [HOUR]
    assert await timeline.entries("unreadable") == []
    assert [told["event"] for told in logs] == ["schedule.unreadable"]


async def test_the_pauses_of_others_end(timeline: Timeline) -> None:
    unreadable = await define(timeline)
    job = await timeline.apply("every 1h")
    for number, held in enumerate([await timeline.scene.show_job(unreadable), job], 1):
        end = START + number * MINUTE
        await pauses.pause(timeline.engine, held, actor="test", until=end)
    timeline.be_down(HOUR - MINUTE)

    await timeline.scheduler.run_once()

    assert not (await timeline.job()).paused
    assert (await timeline.job("unreadable")).paused


async def test_others_go_on_after_their_runs(timeline: Timeline) -> None:
    unreadable = await define(timeline, interval_from="completion")
    await timeline.apply("every 1h", interval_from="completion")
    timeline.be_down(HOUR)
    await timeline.scene.fire(unreadable, next_at=None, waits=True)
    await timeline.scheduler.run_once()
    assert await timeline.end_runs() == 2

    await timeline.scheduler.run_once()

    assert (await timeline.job()).next_at == START + 2 * HOUR
    assert (await timeline.job("unreadable")).waits
