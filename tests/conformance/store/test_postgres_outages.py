"""PostgreSQL closes connections: those that nobody uses cost nothing, the others an answer."""

from __future__ import annotations

from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from rota.domain.errors import Unavailable
from rota.store.postgres.driver import PostgresDriver
from rota.store.store import SqlStore
from testkit.builders import Scene
from testkit.clock import FakeTicker
from tests.conformance.store.rivals import Rival

pytestmark = pytest.mark.anyio

TERMINATE = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
MOMENTS = 8  # in the driver's reading of the end: it sees the reason first


@pytest.mark.parametrize("moments", range(MOMENTS))
async def test_a_connection_that_was_closed_while_idle_costs_nothing(
    postgres_store: SqlStore, clock: FakeTicker, rival: Rival, moments: int
) -> None:
    scene = Scene(postgres_store, clock)
    job_id = await scene.job()

    assert await rival.fetchval(TERMINATE) > 0
    for _ in range(moments):
        await checkpoint()

    assert len(await scene.trigger(job_id, 3)) == 3


@pytest.mark.parametrize("moments", range(MOMENTS))
async def test_a_connection_that_is_closed_during_a_transaction_makes_the_store_unavailable(
    postgres_store: SqlStore,
    clock: FakeTicker,
    rival: Rival,
    monkeypatch: pytest.MonkeyPatch,
    moments: int,
) -> None:
    scene = Scene(postgres_store, clock)
    job_id = await scene.job()
    drive = PostgresDriver._drive

    async def drive_after_the_end(driver: Any, connection: Any, script: Any) -> Any:
        monkeypatch.undo()
        assert await rival.fetchval(TERMINATE) > 0
        for _ in range(moments):
            await checkpoint()
        return await drive(driver, connection, script)

    monkeypatch.setattr(PostgresDriver, "_drive", drive_after_the_end)

    with pytest.raises(Unavailable):
        await scene.trigger(job_id)
    assert len(await scene.trigger(job_id)) == 1
