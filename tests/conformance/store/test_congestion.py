"""Jobs whose runs hold one another back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import JobId
from rota.domain.lateness import Congestion
from rota.domain.spec import Overlap
from rota.ports.records import Event
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio

LONG = timedelta(hours=2)


async def busy_job(scene: Scene, due: int, **rules: Any) -> JobId:
    """A job that was due so often, with the first run still going."""
    job_id = await scene.job(next_at=scene.clock.instant, **rules)
    for _ in range(due):
        await scene.scheduled_run(job_id)
    return job_id


async def events(scene: Scene) -> list[Event]:
    known = await scene.store.events(0, 1_000)
    return [event for event in known if event.kind in ("job.stuck", "job.drained")]


async def test_a_job_with_one_run_is_not_congested(scene: Scene) -> None:
    await busy_job(scene, 1)

    assert await scene.store.congested_jobs() == {}


async def test_waiting_runs_are_counted_from_the_oldest_active_one(scene: Scene) -> None:
    began = scene.clock.instant
    job_id = await busy_job(scene, 4, overlap=Overlap.QUEUE_ALL)

    found = await scene.store.congested_jobs()

    assert found == {job_id: Congestion(3, False, began, None)}


async def test_a_job_that_skips_for_long_is_found(scene: Scene) -> None:
    began = scene.clock.instant
    job_id = await busy_job(scene, 2, overlap=Overlap.SKIP)
    assert await scene.store.congested_jobs() == {}

    scene.advance(LONG)

    assert await scene.store.congested_jobs() == {job_id: Congestion(0, True, began, None)}


async def test_a_long_run_that_holds_nobody_back_is_told_as_such(scene: Scene) -> None:
    job_id = await busy_job(scene, 1)
    scene.advance(LONG)

    found = await scene.store.congested_jobs()

    assert not found[job_id].is_holding_back


async def test_what_a_pause_holds_is_not_congestion(scene: Scene) -> None:
    job_id = await busy_job(scene, 3, overlap=Overlap.QUEUE_ALL)
    await scene.move("paused", job_id)
    scene.advance(LONG)

    assert await scene.store.congested_jobs() == {}


async def test_runs_that_somebody_triggered_are_not_the_schedules(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    await scene.trigger(job_id, 5)
    scene.advance(LONG)

    assert await scene.store.congested_jobs() == {}


async def test_an_episode_is_told_once_and_ends_once(scene: Scene) -> None:
    job_id = await busy_job(scene, 3, overlap=Overlap.QUEUE_ALL)
    stuck = await scene.store.congested_jobs()
    began = scene.advance(MINUTE)

    assert await scene.store.mark_stuck(stuck, stuck) == [job_id]
    assert await scene.store.mark_stuck(stuck, stuck) == []
    assert (await scene.show_job(job_id)).stuck_since == began

    await scene.store.mark_stuck({}, [])
    await scene.store.mark_stuck({}, [])

    assert (await scene.show_job(job_id)).stuck_since is None
    told = await events(scene)
    assert [(event.kind, event.ids) for event in told] == [
        ("job.stuck", (job_id,)),
        ("job.drained", (job_id,)),
    ]
    assert told[0].data["waiting"] == 2


async def test_an_episode_goes_on_while_runs_are_held_back(scene: Scene) -> None:
    job_id = await busy_job(scene, 3, overlap=Overlap.QUEUE_ALL)
    await scene.store.mark_stuck(await scene.store.congested_jobs(), [job_id])

    await scene.store.mark_stuck({}, [job_id])

    assert (await scene.show_job(job_id)).stuck_since is not None
