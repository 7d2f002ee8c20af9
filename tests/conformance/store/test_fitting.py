"""Runs that no worker of their pool could ever take."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.run import Reason
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from testkit.builders import MINUTE, Scene, hello

pytestmark = pytest.mark.anyio


async def look_for_workers(scene: Scene, limit: int = 100) -> int:
    """What the scheduler does once a worker has come."""
    released = await scene.store.release_fitting(limit)
    await scene.release()
    return released


async def reason_of(scene: Scene, run: str) -> Reason:
    [reason] = (await scene.show(run)).reasons
    return reason


@pytest.mark.parametrize(
    ("demand", "lacks", "offer"),
    [
        ({"needs": {"site": "fra"}}, "label site=fra", {"labels": {"site": "fra"}}),
        ({"function": "app:load"}, "function app:load", {"functions": ("app:load",)}),
        ({"resources": {"gpu": 2_000}}, "2 gpu", {"resources": {"gpu": 2_000}}),
    ],
)
async def test_a_run_that_nobody_could_take_waits_for_a_worker_that_can(
    scene: Scene, demand: dict[str, Any], lacks: str, offer: dict[str, Any]
) -> None:
    await scene.worker("plain")
    [run] = await scene.trigger(await scene.job(**demand))
    waiting = await scene.show(run)

    before = await look_for_workers(scene)
    worker = await scene.worker("able", **offer)
    released = await look_for_workers(scene)

    [reason] = waiting.reasons
    assert waiting.state is RunState.BLOCKED
    assert (reason.gate, reason.action) == ("worker", "rota worker list")
    assert reason.key.startswith("worker:default/")
    assert lacks in reason.message
    assert (before, released) == (0, 1)
    assert [work.run for work in await scene.claim(worker)] == [run]


async def test_in_an_empty_pool_runs_stay_in_the_queue(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(needs={"site": "fra"}))

    assert await scene.state(run) is RunState.QUEUED


async def test_a_worker_that_has_just_come_is_seen_by_the_next_run(scene: Scene) -> None:
    job_id = await scene.job(needs={"site": "fra"})
    await scene.worker("plain")

    [before] = await scene.trigger(job_id)
    scene.advance(timedelta(milliseconds=100))
    await scene.worker("able", labels={"site": "fra"})
    scene.advance(timedelta(milliseconds=100))
    [after] = await scene.trigger(job_id)

    assert await scene.states([before, after]) == [RunState.BLOCKED, RunState.QUEUED]


async def test_a_worker_that_was_here_a_moment_ago_may_come_back(scene: Scene) -> None:
    job_id = await scene.job(needs={"site": "fra"})
    worker = await scene.worker(labels={"site": "fra"})
    await scene.worker("plain")
    await scene.store.end_session(worker)

    [soon] = await scene.trigger(job_id)
    scene.advance(2 * MINUTE)
    [later] = await scene.trigger(job_id)

    assert await scene.states([soon, later]) == [RunState.QUEUED, RunState.BLOCKED]


async def test_due_runs_and_retries_come_to_the_same_gate(scene: Scene) -> None:
    await scene.worker("plain")
    job_id = await scene.job(needs={"site": "fra"}, next_at=scene.clock.instant + MINUTE)
    [planned] = await scene.trigger(job_id, at=scene.clock.instant + MINUTE)

    due = await scene.scheduled_run(job_id)
    await scene.release()

    assert due.state is RunState.BLOCKED
    assert await scene.state(planned) is RunState.BLOCKED
    assert (await reason_of(scene, planned)).gate == "worker"


async def test_a_run_without_a_worker_holds_no_slot_of_its_job(scene: Scene) -> None:
    await scene.worker("plain")
    job_id = await scene.job(max_concurrency=1, needs={"site": "fra"})
    [unfit] = await scene.trigger(job_id)
    await scene.change(job_id, max_concurrency=1)

    [fit] = await scene.trigger(job_id)

    assert await scene.states([unfit, fit]) == [RunState.BLOCKED, RunState.QUEUED]


async def test_unfit_runs_are_not_in_the_way_of_others(scene: Scene) -> None:
    worker = await scene.worker(slots=10)
    await scene.trigger(await scene.job("unfit", needs={"site": "fra"}), 500, priority=9)
    [run] = await scene.trigger(await scene.job("fit"))

    assert [work.run for work in await scene.claim(worker, 10)] == [run]
    assert ("QUEUED", "default") not in (await scene.store.counts()).runs


async def test_those_that_fit_go_in_steps_and_by_age(scene: Scene) -> None:
    await scene.worker("plain")
    runs = await scene.trigger(await scene.job(needs={"site": "fra"}), 5)
    other = await scene.trigger(await scene.job("other", needs={"site": "ams"}), 5)
    await scene.worker(labels={"site": "fra"})

    steps = [await look_for_workers(scene, 2) for _ in range(4)]

    assert steps == [2, 2, 1, 0]
    assert await scene.states(runs) == [RunState.QUEUED] * 5
    assert await scene.states(other) == [RunState.BLOCKED] * 5


async def test_workers_that_come_wake_whoever_looks_after_these_runs(
    scene: Scene, published: list[Wakes]
) -> None:
    await scene.store.register(hello(), timedelta(minutes=1))
    wakes = published[-1]

    assert wakes.workers
