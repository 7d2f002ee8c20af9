"""A pooler between the store and PostgreSQL: what it is called, what it may do, how it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rota.domain.errors import Unavailable
from rota.runtime.doctor import Finding, Verdict, look_at_queue, look_at_store
from rota.runtime.settings import Settings
from rota.store.postgres import driver
from rota.store.postgres.opening import PostgresStore, open_postgres
from rota.store.script import Script, Urgency, lock
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.servers.pgbouncer import PgBouncer
from testkit.servers.postgres import PostgresServer
from tests.pooler import pooler_before

pytestmark = pytest.mark.anyio

ALL_TO_ONE = 1  # connection


@pytest.fixture
def pooler(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    with pooler_before(postgres_server, ALL_TO_ONE) as pooler:
        yield pooler


@pytest.fixture
async def store(
    pooler: PgBouncer, database: str, clock: FakeTicker
) -> AsyncIterator[PostgresStore]:
    opened = await open_postgres(pooler.address(database), clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
async def loop_errors() -> AsyncIterator[list[dict[str, Any]]]:
    """What nobody but the event loop was told."""
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, error: told.append(error))
    yield told
    loop.set_exception_handler(None)


async def test_servers_that_come_together_make_one_schema(
    postgres_server: PostgresServer, pooler: PgBouncer
) -> None:
    await postgres_server.execute("CREATE DATABASE empty")
    address = pooler.address("empty")

    stores = await asyncio.gather(*(open_postgres(address) for _ in range(3)))

    for store in stores:
        await store.check()
        await store.close()
    await postgres_server.drop("empty")


def store_finding(address: str) -> Finding:
    return next(look_at_store(Settings(store=address)))


def queue_finding(address: str) -> Finding:
    return next(look_at_queue(Settings(queue=address)))


@pytest.mark.parametrize(
    ("find", "verdict"), [(store_finding, Verdict.OK), (queue_finding, Verdict.WARNING)]
)
async def test_the_doctor_names_it_where_there_is_one(
    find: Callable[[str], Finding],
    verdict: Verdict,
    postgres_server: PostgresServer,
    pooler: PgBouncer,
    database: str,
) -> None:
    direct = await asyncio.to_thread(find, postgres_server.address(database))
    pooled = await asyncio.to_thread(find, pooler.address(database))

    assert (direct.verdict, pooled.verdict) == (Verdict.OK, verdict)
    assert "through a pooler" not in direct.message
    assert "through a pooler" in pooled.message


async def test_one_that_knows_no_transactions_is_refused_at_once(
    postgres_server: PostgresServer, database: str
) -> None:
    with (
        pooler_before(postgres_server, settings={"pool_mode": "statement"}) as pooler,
        pytest.raises(Unavailable) as refused,
    ):
        await open_postgres(pooler.address(database))

    assert refused.value.code != "store_away"  # waiting does not help
    assert "pool_mode = transaction" in refused.value.hint


@pytest.mark.parametrize(
    "settings",
    [
        {"pool_mode": "session", "default_pool_size": "20"},
        {"server_reset_query_always": "1"},
        {"ignore_startup_parameters": "extra_float_digits"},
    ],
    ids=str,
)
async def test_other_settings_of_it_change_nothing(
    settings: dict[str, str], postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    with pooler_before(postgres_server, settings=settings) as pooler:
        store = await open_postgres(pooler.address(database), clock=clock)
        scene = Scene(store, clock)
        worker = await scene.worker()
        runs = await scene.trigger(await scene.job(), 2)

        works = await scene.claim(worker)
        await scene.finish(worker, works)

        assert {work.fence.run for work in works} == set(runs)
        await store.close()


async def test_its_end_undoes_what_was_begun(store: PostgresStore, pooler: PgBouncer) -> None:
    scene = Scene(store, FakeTicker())
    job = await scene.job()

    def interrupted(_: int) -> Script[None]:
        yield lock("gates", ids=[job])
        pooler.kill()
        yield lock("gates", ids=[job])

    with pytest.raises(Unavailable):
        await store._driver.write(interrupted, Urgency.API)
    pooler.start()

    await scene.trigger(job, 1)  # nobody holds the gate


async def test_who_gives_up_while_it_begins_leaves_no_transaction(
    store: PostgresStore,
    postgres_server: PostgresServer,
    loop_errors: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as slow:
        slow.setattr(driver, "BEGIN_READ", f"{driver.BEGIN_READ}; SELECT pg_sleep(600)")
        reading = asyncio.create_task(store._driver.read(nothing))
        await until_somebody_sleeps(postgres_server)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    await store.check()
    assert loop_errors == []


def nothing(_: int) -> Script[None]:
    yield from ()


async def until_somebody_sleeps(server: PostgresServer) -> None:
    async with asyncio.timeout(20):
        while not await server.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
            pass
