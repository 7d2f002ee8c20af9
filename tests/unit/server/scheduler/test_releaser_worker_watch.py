"""Runs that nobody could take go once a worker has come."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.states import RunState
from rota.ports.queue import WORKERS
from rota.server.scheduler.releaser import WorkerWatch
from testkit.builders import LEASE, hello
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio


@pytest.fixture
def watch(timeline: Timeline) -> WorkerWatch:
    return WorkerWatch(timeline.engine, timeline.shards)


async def test_a_worker_that_comes_wakes_it_and_it_offers_the_run(
    timeline: Timeline, watch: WorkerWatch
) -> None:
    [run] = await timeline.scene.trigger(await timeline.scene.job(needs={"site": "fra"}))
    came, taker = timeline.engine.queue.listen(WORKERS), timeline.engine.queue.takes("default")
    assert await watch.run_once() == 0

    await timeline.store.register(hello("far", labels={"site": "fra"}), LEASE)

    assert await came.wait(timedelta(seconds=5))
    assert await watch.run_once() == 1
    ticket = await taker.take(timedelta(seconds=5))
    assert ticket is not None
    assert run in ticket.runs
    assert await timeline.scene.state(run) is RunState.QUEUED
    came.close()
    taker.close()


async def test_a_server_that_does_not_lead_lets_nothing_go(
    timeline: Timeline, watch: WorkerWatch
) -> None:
    [run] = await timeline.scene.trigger(await timeline.scene.job(needs={"site": "fra"}))
    await timeline.scene.worker("far", labels={"site": "fra"})
    timeline.shards.hold({}, until=1e12)

    assert await watch.run_once() == 0
    assert await timeline.scene.state(run) is RunState.BLOCKED
