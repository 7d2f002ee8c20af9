"""What a store on PostgreSQL remembers of its claims makes them quicker, never wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.run import AttemptResult
from rota.domain.spec import Retry
from rota.store.postgres.opening import open_postgres
from rota.store.store import SqlStore
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer

pytestmark = pytest.mark.anyio

SOON = timedelta(milliseconds=10)  # while the store trusts its memory
LATER = timedelta(seconds=1)


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


async def test_a_backlog_is_given_in_order_claim_by_claim(scene: Scene) -> None:
    worker = await scene.worker(slots=100)
    runs = await scene.trigger(await scene.job(), 50)

    given = []
    for _ in range(10):
        given += [work.run for work in await scene.claim(worker, 5)]
        scene.advance(SOON)

    assert given == runs


async def test_what_comes_later_is_found_although_the_line_was_empty(scene: Scene) -> None:
    worker, job_id = await scene.worker(slots=100), await scene.job()
    for _ in range(5):
        runs = await scene.trigger(job_id, 2)
        assert [work.run for work in await scene.claim(worker)] == runs
        scene.advance(SOON)
        assert await scene.claim(worker) == []
        scene.advance(SOON)


async def test_a_run_that_another_server_let_go_is_found_by_its_name_or_soon(
    scene: Scene, postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    other_store = await open_postgres(postgres_server.address(database), clock=clock)
    other = Scene(other_store, clock)
    worker, elsewhere = await scene.worker("here", slots=9), await scene.worker("there", slots=9)
    job_id = await scene.job(retry=Retry(attempts=2))
    returned, *_ = await scene.trigger(job_id, 9)
    await other.finish(elsewhere, await other.claim(elsewhere, 1), AttemptResult.FAILED)
    await scene.claim(worker, 2)
    scene.advance(LATER)
    await scene.claim(worker, 1)
    await other.release()
    scene.advance(SOON)

    unnamed = await scene.claim(worker, 1)
    named = await scene.claim(worker, 1, runs=[returned])

    assert [work.run for work in named] == [returned]
    assert [work.run for work in unnamed] != [returned]
    await other_store.close()


async def test_slots_are_counted_also_after_a_claim_that_another_store_made(
    scene: Scene, postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    other_store = await open_postgres(postgres_server.address(database), clock=clock)
    worker = await scene.worker(slots=4)
    await scene.trigger(await scene.job(), 9)
    works = await scene.claim(worker, 3)
    await scene.finish(worker, works[:1])

    filled = await Scene(other_store, clock).claim(worker, 9)

    assert len(filled) == 2
    await other_store.close()


async def test_slots_are_free_again_when_attempts_end(scene: Scene) -> None:
    worker = await scene.worker(slots=2)
    await scene.trigger(await scene.job(), 6)

    for _ in range(3):
        works = await scene.claim(worker)
        assert len(works) == 2
        assert await scene.claim(worker) == []
        await scene.finish(worker, works)
        scene.advance(SOON)
