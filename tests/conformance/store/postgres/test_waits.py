"""Who waits for whom on PostgreSQL where runs wait, are held, and follow others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota.domain.errors import Conflict
from rota.domain.ids import JobId, RunId
from rota.domain.states import RunState
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = pytest.mark.anyio
STEERED: dict[str, Callable[[SqlStore, RunId], Awaitable[object]]] = {
    "hold": lambda store, run: store.hold_run(run, actor="ann"),
    "priority": lambda store, run: store.set_priority(run, 9, actor="ann"),
}


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


async def completed(scene: Scene) -> None:
    """A job that has completed once, which others follow."""
    await scene.trigger(await scene.job("extract"))
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker))


async def follower(scene: Scene) -> JobId:
    return await scene.job("report", next_at=scene.clock.instant + MINUTE, after=("extract",))


async def test_a_completion_waits_for_due_runs_that_are_at_their_gate(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    job_id = await follower(scene)
    [run] = await scene.trigger(job_id)
    await completed(scene)
    await rival.execute("BEGIN; SELECT FROM schedule FOR NO KEY UPDATE")
    await rival.execute(
        "UPDATE run SET state = 'BLOCKED', blocked_on = 'after:default/extract' WHERE id = $1", run
    )

    following = asyncio.create_task(scene.store.follow_ends(10))
    await until_somebody_waits(postgres_server)
    await rival.execute("COMMIT")
    await following

    assert await scene.state(run) is RunState.SCHEDULED


async def test_an_end_that_somebody_follows_is_left_to_him(scene: Scene, rival: Rival) -> None:
    await follower(scene)
    await completed(scene)
    await rival.execute("BEGIN; SELECT FROM upstream_end FOR UPDATE")

    others = await scene.store.follow_ends(10)
    await rival.execute("ROLLBACK")

    assert (others, await scene.store.follow_ends(10)) == (0, 1)


async def test_a_follower_that_is_being_changed_is_waited_for_and_not_for_ever(
    scene: Scene, rival: Rival
) -> None:
    await follower(scene)
    await completed(scene)
    await rival.execute("BEGIN; SELECT FROM schedule FOR NO KEY UPDATE")

    busy = await scene.store.follow_ends(10)
    await rival.execute("ROLLBACK")

    assert (busy, await scene.store.follow_ends(10)) == (0, 1)


@pytest.mark.parametrize("how", STEERED)
async def test_who_claims_a_run_is_first(
    scene: Scene, store: SqlStore, rival: Rival, postgres_server: PostgresServer, how: str
) -> None:
    [run] = await scene.trigger(await scene.job())
    await rival.execute("BEGIN; UPDATE run SET state = 'CLAIMED', attempt = 1")

    steering = asyncio.ensure_future(STEERED[how](store, run))
    await until_somebody_waits(postgres_server)
    await rival.execute("COMMIT")

    with pytest.raises(Conflict) as refusal:
        await steering
    assert refusal.value.code == "run_not_waiting"


async def test_a_run_that_somebody_is_about_to_hold_is_not_claimed(
    scene: Scene, rival: Rival
) -> None:
    first, second = await scene.trigger(await scene.job(), 2)
    worker = await scene.worker()
    await rival.execute(f"BEGIN; SELECT FROM run WHERE id = '{first}' FOR NO KEY UPDATE")

    claimed = await scene.claim(worker)
    await rival.execute("ROLLBACK")

    assert [work.run for work in claimed] == [second]
