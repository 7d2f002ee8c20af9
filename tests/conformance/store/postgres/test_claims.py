"""Claims on PostgreSQL: one after another for one worker, and in nobody else's way."""

from __future__ import annotations

import asyncio

import pytest

from rota.domain.ids import SessionId
from rota.domain.spec import Overlap
from rota.ports.work import Work
from rota.store.postgres import driver
from rota.store.script import Urgency
from rota.store.store import SqlStore
from testkit.builders import Scene
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patience")]


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim waits for as long as a test needs."""
    monkeypatch.setitem(driver._LOCK_TIMEOUTS, Urgency.CLAIM, "60s")


async def held_up(
    scene: Scene, worker: SessionId, rival: Rival, server: PostgresServer
) -> asyncio.Task[list[Work]]:
    """A claim that goes on when the rival's transaction ends."""
    await rival.execute("BEGIN; SELECT FROM chain FOR UPDATE")
    claiming = asyncio.create_task(scene.claim(worker))
    await until_somebody_waits(server)
    return claiming


async def test_a_renewal_waits_for_none(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker()
    claiming = await held_up(scene, worker, rival, postgres_server)

    renewal = await scene.store.renew(worker, stopping=False)

    assert renewal.alive
    assert not claiming.done()
    await rival.execute("COMMIT")
    assert len(await claiming) == 1


async def test_those_for_one_worker_share_its_slots(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 2)
    worker = await scene.worker(slots=1)
    first = await held_up(scene, worker, rival, postgres_server)

    second = asyncio.create_task(scene.claim(worker))
    await until_somebody_waits(postgres_server, many=2)
    await rival.execute("COMMIT")

    assert len([*await first, *await second]) == 1


async def test_one_that_waited_while_its_session_ended_gets_nothing(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker()
    await rival.execute(f"BEGIN; SELECT pg_advisory_xact_lock(7682002, hashtext('{worker}'))")

    claiming = asyncio.create_task(scene.claim(worker))
    await until_somebody_waits(postgres_server)
    await scene.store.end_session(worker)
    await rival.execute("COMMIT")

    assert await claiming == []


async def test_their_statements_are_planned_once(store: SqlStore, scene: Scene) -> None:
    job_id, worker = await scene.job(), await scene.worker()

    for _ in range(2):
        await scene.trigger(job_id)
        assert await scene.claim(worker)

    async with store._driver._pools.connection(Urgency.CLAIM) as connection:  # type: ignore[attr-defined]
        [plans] = await connection.fetch(
            "SELECT sum(custom_plans) AS custom, sum(generic_plans) AS generic"
            " FROM pg_prepared_statements"
        )
    assert plans["custom"] == 0
    assert plans["generic"] > 0
