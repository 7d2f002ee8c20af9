"""Who waits for whom on PostgreSQL when projects, pools and policies change at once."""

from __future__ import annotations

import asyncio

import pytest

from rota.domain.policy import Policy
from rota.domain.states import RunState
from rota.ports.projects import NewProject
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


async def test_a_new_project_waits_until_a_pool_is_given_away(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.project("shop")
    await rival.execute("BEGIN; SELECT FROM project ORDER BY name FOR NO KEY UPDATE")
    await rival.execute("INSERT INTO pool_project VALUES ('gpu', 'shop')")

    making = asyncio.create_task(scene.project("ops"))
    await until_somebody_waits(postgres_server)
    await rival.execute("COMMIT")
    await making

    facts = await scene.store.project_facts(["ops"])
    assert facts["ops"].bounds.barred == ("gpu",)


async def test_a_run_that_is_queued_by_the_old_policy_is_found_by_the_new_one(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    """A firing that has the gate read the policy before: its run must not stay in the queue."""
    job = await scene.job(priority=7)
    [run] = await scene.trigger(job, at=scene.clock.instant + MINUTE)
    await rival.execute("BEGIN; SELECT FROM schedule FOR NO KEY UPDATE")

    tightened = NewProject("default", policy=Policy(priority=5))
    tightening = asyncio.create_task(
        scene.store.change_project(tightened, expected_version=1, actor="admin")
    )
    await until_somebody_waits(postgres_server)
    await rival.execute("UPDATE run SET state = 'QUEUED' WHERE id = $1", run)
    await rival.execute("COMMIT")
    await tightening

    assert await scene.state(run) is RunState.BLOCKED
