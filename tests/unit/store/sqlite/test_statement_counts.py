"""What a run costs from its due time to a worker, in statements, which no busy machine blurs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.ids import JobId
from rota.ports.records import Room, SeenPools
from rota.store.sqlite import driver
from rota.store.sqlite.driver import connect
from rota.store.sqlite.opening import open_sqlite
from testkit.builders import LEASE, MINUTE, Scene, firing_of, hello
from testkit.clock import FakeTicker

pytestmark = pytest.mark.anyio

MOST = 28  # with the beginning and the end of the transaction; most of P4's time goes with them


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a store executes, in order."""
    executed: list[str] = []

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(executed.append)
        return connection

    monkeypatch.setattr(driver, "connect", traced)
    return executed


@pytest.fixture
async def scene(tmp_path: Path, statements: list[str]) -> AsyncIterator[Scene]:
    clock = FakeTicker()
    store = await open_sqlite(tmp_path / "rota.db", clock=clock)
    yield Scene(store, clock)
    await store.close()


async def test_a_run_that_is_due_begins_after_few_statements(
    scene: Scene, statements: list[str]
) -> None:
    job = await scene.show_job(await scene.job(next_at=scene.clock.instant))
    session = await scene.store.register(hello(), LEASE)
    firing = firing_of(job, next_at=scene.clock.instant + MINUTE)
    ownership = await scene.ownership()
    room = Room(session.id, 10, session.stream)
    statements.clear()

    fired = await scene.store.fire([firing], ownership, room)

    assert len(fired.claimed) == 1
    assert len(statements) <= MOST, statements


async def test_others_are_looked_at_only_for_a_young_run_that_asks_for_resources(
    scene: Scene, statements: list[str]
) -> None:
    worker = await scene.worker(resources={"cpu": 8_000})
    asking = await scene.job("asking", resources={"cpu": 1_000})

    async def looks(job: JobId, age: timedelta) -> int:
        await scene.trigger(job)
        scene.advance(age)
        statements.clear()
        assert len(await scene.claim(worker)) == 1
        return sum("AS near" in statement for statement in statements)

    assert await looks(await scene.job("plain"), timedelta()) == 0
    assert await looks(asking, timedelta(seconds=1)) == 0
    assert await looks(asking, timedelta(milliseconds=999)) == 1


async def test_who_is_told_that_no_worker_serves_a_pool_is_told_with_all_who_ask_at_that_time(
    scene: Scene, statements: list[str]
) -> None:
    statements.clear()

    answers = await asyncio.gather(*(scene.store.seen_pools("default", "x") for _ in range(32)))

    assert set(answers) == {SeenPools(is_served=False, others=frozenset())}
    assert len(statements) <= 5  # begin, the clock, two looks, commit


async def test_nobody_looks_for_other_pools_while_the_own_one_is_served(
    scene: Scene, statements: list[str]
) -> None:
    await scene.worker()
    statements.clear()

    assert (await scene.store.seen_pools("default", "default")).is_served

    assert not any("pool_project" in statement for statement in statements)
