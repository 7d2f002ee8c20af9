"""What is due begins at once where a worker of the firing server has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rota.domain.ids import JobId, SessionId
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Fired, Room
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene, firing_of
from tests.conformance.store.rivals import Rival

pytestmark = pytest.mark.anyio


async def due_jobs(scene: Scene, count: int = 1, **fields: Any) -> list[JobId]:
    now = scene.clock.instant
    return [await scene.job(f"job-{n}", next_at=now, **fields) for n in range(count)]


async def fire(scene: Scene, jobs: Sequence[JobId], room: Room | None) -> Fired:
    found = [await scene.show_job(job) for job in jobs]
    firings = [firing_of(job, next_at=scene.clock.instant + MINUTE) for job in found]
    return await scene.store.fire(firings, await scene.ownership(), room)


async def fire_for(scene: Scene, session: SessionId, **fields: Any) -> Fired:
    """Fire a job that is due, for a worker that is said to have ten free slots."""
    return await fire(scene, await due_jobs(scene, **fields), Room(session, 10))


def is_left_waiting(fired: Fired, wakes: Wakes) -> bool:
    return not fired.claimed and fired.run_count == 1 and list(wakes.pools) == ["default"]


async def test_what_is_due_is_claimed_by_the_firing_and_nobody_else_is_woken(
    scene: Scene, published: list[Wakes]
) -> None:
    worker = await scene.worker()

    fired = await fire_for(scene, worker)

    [work] = fired.claimed
    run = await scene.show(work.run)
    assert (run.state, run.session, work.attempt) == (RunState.CLAIMED, worker, 1)
    assert published[-1].pools == {}
    assert await scene.claim(worker) == []


async def test_what_the_firing_claimed_is_finished_like_any_other(scene: Scene) -> None:
    worker = await scene.worker()
    fired = await fire_for(scene, worker)

    finished = await scene.finish(worker, fired.claimed)

    assert len(finished.accepted) == 1
    assert await scene.state(fired.claimed[0].run) == RunState.COMPLETED


async def test_what_finds_no_room_waits_for_others(scene: Scene, published: list[Wakes]) -> None:
    worker, other = await scene.worker(), await scene.worker("other")

    fired = await fire(scene, await due_jobs(scene, 3), Room(worker, 2))

    [waiting] = published[-1].pools["default"]
    assert len(fired.claimed) == 2
    assert [work.run for work in await scene.claim(other)] == [waiting]


async def test_room_that_the_worker_has_not_is_not_filled(scene: Scene) -> None:
    worker = await scene.worker(slots=2)

    fired = await fire(scene, await due_jobs(scene, 3), Room(worker, 10))

    assert len(fired.claimed) == 2


async def test_who_waited_before_goes_first(scene: Scene, published: list[Wakes]) -> None:
    [earlier] = await scene.trigger(await scene.job("earlier", share="team"))
    worker = await scene.worker()

    fired = await fire(scene, await due_jobs(scene, share="team"), Room(worker, 1))

    assert [work.run for work in fired.claimed] == [earlier]
    assert len(published[-1].pools["default"]) == 1


async def test_a_worker_that_connected_anew_gets_nothing_from_its_former_server(
    scene: Scene,
    published: list[Wakes],
) -> None:
    worker = await scene.worker()

    fired = await fire(scene, await due_jobs(scene), Room(worker, 10, stream=2))

    assert is_left_waiting(fired, published[-1])


async def test_a_worker_that_is_gone_does_not_keep_a_job_from_firing(
    scene: Scene, published: list[Wakes]
) -> None:
    worker = await scene.worker()
    await scene.store.end_session(worker)

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_worker_that_stops_gets_nothing(scene: Scene, published: list[Wakes]) -> None:
    worker = await scene.worker()
    await scene.store.renew(worker, stopping=True)

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_drained_worker_gets_nothing(scene: Scene, published: list[Wakes]) -> None:
    worker = await scene.worker()
    await scene.store.drain_worker("worker", actor="operator")

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_worker_of_another_pool_gets_nothing(scene: Scene, published: list[Wakes]) -> None:
    worker = await scene.worker(pool="gpu")

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_run_that_may_not_go_yet_is_not_claimed(
    scene: Scene, published: list[Wakes]
) -> None:
    worker = await scene.worker()
    [job] = await due_jobs(scene, max_concurrency=1)
    await scene.trigger(job)

    fired = await fire(scene, [job], Room(worker, 10))

    assert (fired.claimed, fired.run_count, published[-1].pools) == ((), 1, {})


class TestOnPostgres:
    @pytest.fixture
    def store(self, postgres_store: SqlStore) -> SqlStore:
        return postgres_store

    async def test_firing_waits_for_nobody_who_is_busy_with_the_worker(
        self, scene: Scene, rival: Rival, published: list[Wakes]
    ) -> None:
        worker = await scene.worker()
        await rival.execute("BEGIN; SELECT FROM session FOR UPDATE")

        fired = await fire_for(scene, worker)

        await rival.execute("ROLLBACK")
        assert is_left_waiting(fired, published[-1])
