"""What only a store on PostgreSQL has: migrations under a lock, pools, retries, outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from anyio.lowlevel import checkpoint

from rota.domain.errors import Conflict, Invalid, Unavailable
from rota.store.postgres import connections, driver
from rota.store.postgres.connections import PoolSizes, connect_settings
from rota.store.postgres.driver import PostgresDriver
from rota.store.postgres.opening import open_postgres
from rota.store.script import LookAgain, Many, Script, Urgency, lock
from rota.store.store import SqlStore
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer, server_folder
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


@pytest.fixture
async def empty_database(postgres_server: PostgresServer) -> AsyncIterator[str]:
    await postgres_server.execute("CREATE DATABASE empty")
    yield "empty"
    await postgres_server.drop("empty")


class TestOpening:
    @pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
    async def test_servers_that_come_together_make_one_schema(
        self, postgres_server: PostgresServer, empty_database: str, isolation: str
    ) -> None:
        default = f"default_transaction_isolation = '{isolation}'"
        await postgres_server.execute(f"ALTER DATABASE {empty_database} SET {default}")
        address = postgres_server.address(empty_database)

        stores = await asyncio.gather(*(open_postgres(address) for _ in range(5)))

        for store in stores:
            await store.check()
            await store.close()

    async def test_a_second_server_waits_for_the_migration_of_the_first(
        self, postgres_server: PostgresServer, empty_database: str
    ) -> None:
        address = postgres_server.address(empty_database)
        first = await asyncpg.connect(address)
        await first.execute("BEGIN; SELECT pg_advisory_xact_lock(7682001)")
        opening = asyncio.create_task(open_postgres(address))

        await until_somebody_waits(postgres_server)
        assert not opening.done()

        await first.close()
        await (await opening).close()

    async def test_a_migration_may_take_longer_than_any_other_command(
        self,
        postgres_server: PostgresServer,
        empty_database: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(connections, "_COMMAND_SECONDS", 0.5)
        address = postgres_server.address(empty_database)
        first = await asyncpg.connect(address)
        await first.execute("BEGIN; SELECT pg_advisory_xact_lock(7682001)")
        opening = asyncio.create_task(open_postgres(address))

        await until_somebody_waits(postgres_server)
        await first.execute("SELECT pg_sleep(1)")
        await first.close()

        await (await opening).close()

    async def test_a_store_made_by_a_newer_rota_is_refused(
        self, postgres_server: PostgresServer, database: str
    ) -> None:
        await postgres_server.execute("UPDATE meta SET value = '99' WHERE key = 'schema'", database)

        with pytest.raises(Conflict) as conflict:
            await open_postgres(postgres_server.address(database))

        assert conflict.value.code == "store_is_newer"

    async def test_a_database_that_does_not_exist_is_told(
        self, postgres_server: PostgresServer
    ) -> None:
        with pytest.raises(Unavailable) as unavailable:
            await open_postgres(postgres_server.address("nowhere"))

        assert "create the database" in unavailable.value.hint

    async def test_a_server_that_does_not_answer_is_told(self) -> None:
        with pytest.raises(Unavailable) as unavailable:
            await open_postgres("postgresql://rota@127.0.0.1:1/rota")

        assert "runs" in unavailable.value.hint

    async def test_what_is_no_address_is_told(self) -> None:
        with pytest.raises(Invalid):
            await open_postgres("postgresql://rota@127.0.0.1:port/rota")

    async def test_the_setting_for_poolers_must_be_a_number(self) -> None:
        with pytest.raises(Invalid):
            connect_settings("postgresql://rota@127.0.0.1/rota?statement_cache_size=none")


async def test_nothing_is_prepared_for_a_pooler_that_cannot_keep_it(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    address = postgres_server.address(database) + "?statement_cache_size=0"
    store = await open_postgres(address, clock=clock, sizes=PoolSizes(1, 1, 1, 1, 1))
    scene = Scene(store, clock)
    worker = await scene.worker()
    await scene.trigger(await scene.job(), 3)

    works = await scene.claim(worker)
    await scene.finish(worker, works)

    driver = store._driver
    assert isinstance(driver, PostgresDriver)
    async with driver._pools.connection(Urgency.FINISH) as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0
    await store.close()


async def test_the_clock_is_the_database_s(postgres_server: PostgresServer, database: str) -> None:
    store = await open_postgres(postgres_server.address(database))

    before = (await postgres_server.execute("SELECT clock_timestamp()"))[0][0]
    now = await store.now()
    after = (await postgres_server.execute("SELECT clock_timestamp()"))[0][0]

    assert before <= now <= after
    await store.close()


class TestRetries:
    async def test_a_deadlock_is_tried_again_and_nobody_hears_of_it(
        self, store: SqlStore, scene: Scene, postgres_server: PostgresServer, database: str
    ) -> None:
        one, other = await scene.job("one"), await scene.job("other")
        rival = await asyncpg.connect(postgres_server.address(database))
        take = "SELECT FROM schedule WHERE job_id = '{}' FOR UPDATE"
        await rival.execute("BEGIN; " + take.format(other))
        tries = 0

        def crossing(_: int) -> Script[None]:
            nonlocal tries
            tries += 1
            yield lock("gates", ids=[one])
            yield lock("gates", ids=[other])

        write = asyncio.create_task(store._driver.write(crossing, Urgency.API))
        await until_somebody_waits(postgres_server)
        await rival.execute(take.format(one))  # whoever waited first is sent back
        await rival.close()
        await write

        assert tries == 2

    async def test_a_script_that_is_always_late_gives_up(self, store: SqlStore) -> None:
        tries = 0

        def never(_: int) -> Script[None]:
            nonlocal tries
            tries += 1
            yield from ()
            raise LookAgain("always")

        with pytest.raises(Unavailable):
            await store._driver.write(never, Urgency.API)

        assert tries > 1

    async def test_what_exists_after_many_tries_is_a_conflict_too(
        self, store: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(driver, "_PAUSE_SECONDS", 0)
        others = [LookAgain("not yet")] * (driver._TRIES - 1)

        def insert(_: int) -> Script[None]:
            yield from ()
            raise others.pop() if others else asyncpg.UniqueViolationError("exists")

        with pytest.raises(Conflict):
            await store._driver.write(insert, Urgency.API)

    async def test_what_exists_is_looked_at_twice_and_then_a_conflict(
        self, store: SqlStore
    ) -> None:
        tries = 0

        def insert(now: int) -> Script[None]:
            nonlocal tries
            tries += 1
            yield Many("insert_job_version", [("j_1", 1, "{}", "", "{}", "user", now)])

        await store._driver.write(insert, Urgency.API)
        with pytest.raises(Conflict):
            await store._driver.write(insert, Urgency.API)

        assert tries == 3

    async def test_a_failed_script_leaves_no_trace(self, store: SqlStore, scene: Scene) -> None:
        def fail(now: int) -> Script[None]:
            yield Many("set_meta", [("trace", str(now))])
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store._driver.write(fail, Urgency.API)

        await store.check()


async def test_leases_are_renewed_while_people_wait(
    store: SqlStore, scene: Scene, postgres_server: PostgresServer, database: str
) -> None:
    job_id = await scene.job()
    worker = await scene.worker()
    blocker = await asyncpg.connect(postgres_server.address(database))
    await blocker.execute("BEGIN; LOCK TABLE schedule")
    crowd = [asyncio.create_task(scene.trigger(job_id)) for _ in range(200)]
    await until_somebody_waits(postgres_server)

    renewal = await asyncio.wait_for(store.renew(worker, stopping=False), 10)

    assert renewal.alive
    await blocker.close()
    await asyncio.gather(*crowd)


async def test_an_event_is_passed_only_after_all_that_began_before_it(
    store: SqlStore, scene: Scene, postgres_server: PostgresServer, database: str
) -> None:
    rival = await asyncpg.connect(postgres_server.address(database))
    await rival.execute("BEGIN; SELECT pg_current_xact_id()")
    await scene.job()

    before = await store.events(0, 10)
    end = await store.last_event()
    await rival.close()
    after = await store.events(0, 10)

    assert (before, end) == ([], 0)
    assert [event.kind for event in after] == ["job.created"]


@pytest.mark.slow
async def test_a_store_outlives_the_restart_of_its_database(clock: FakeTicker) -> None:
    with server_folder() as folder, PostgresServer(folder / "server") as server:
        store = await open_postgres(server.address(await server.create()), clock=clock)
        scene = Scene(store, clock)
        job_id = await scene.job()
        kept = await scene.trigger(job_id, 3)

        server.stop(how="immediate")
        with pytest.raises(Unavailable):
            await scene.trigger(job_id)
        server.start()

        assert len(await scene.states(kept)) == 3
        await scene.trigger(job_id)
        await store.renew(await scene.worker(lease=timedelta(seconds=9)), stopping=False)
        await store.close()


async def test_a_closed_store_says_so(postgres_server: PostgresServer, database: str) -> None:
    store = await open_postgres(postgres_server.address(database))
    await store.close()

    with pytest.raises(Unavailable):
        await store.now()


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


async def test_plans_are_not_kept_for_long(
    postgres_server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_PLANS_KEPT_SECONDS", 0.05)
    store = await open_postgres(postgres_server.address(database))
    oldest = "SELECT min(prepare_time) FROM pg_prepared_statements"

    async with (
        asyncio.timeout(30),
        store._driver._pools.connection(Urgency.CLAIM) as connection,  # type: ignore[attr-defined]
    ):
        first = await connection.fetchval(oldest)
        while await connection.fetchval(oldest) == first:
            await checkpoint()

    await store.close()
