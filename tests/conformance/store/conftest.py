"""Every adapter of the store port, with a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import asyncpg
import pytest

from rota.domain.ids import JobId, SessionId
from rota.ports.queue import Wakes
from rota.ports.store import Store
from rota.store.postgres.connections import PoolSizes
from rota.store.postgres.opening import open_postgres
from rota.store.store import SqlStore
from testkit.builders import Scene
from testkit.cart_scenes import CartScene
from testkit.clock import FakeTicker
from testkit.new_stores import open_new_sqlite
from testkit.servers.postgres import PostgresServer, server_folder
from tests.conformance.store.rivals import Rival
from tests.pooler import pooler_before

VERSIONS = (15, 16, 18)
POOLED = "postgres-pooled"
# For tests of what is done side by side: also where no two transactions share a connection.
every_way = pytest.mark.parametrize("store", ["sqlite", "postgres", POOLED], indirect=True)


class PostgresServers:
    """One of each version, started when the first test asks for it."""

    def __init__(self, folder: Path, until: ExitStack) -> None:
        self._folder = folder
        self._until = until
        self._running: dict[int, PostgresServer] = {}

    def __getitem__(self, version: int) -> PostgresServer:
        if version not in self._running:
            server = PostgresServer(self._folder / str(version), version)
            self._running[version] = self._until.enter_context(server)
        return self._running[version]


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[PostgresServers]:
    with server_folder() as folder, ExitStack() as until:
        yield PostgresServers(folder, until)


@pytest.fixture
def postgres_server(
    request: pytest.FixtureRequest, postgres_servers: PostgresServers
) -> PostgresServer:
    """For what only PostgreSQL does, whatever its version."""
    return postgres_servers[request.config.getoption("postgres") or VERSIONS[-1]]


@pytest.fixture
async def database(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """One with an empty store in it."""
    name = await postgres_server.create()
    yield name
    await postgres_server.drop(name)


@pytest.fixture
async def rival(postgres_server: PostgresServer, database: str) -> AsyncIterator[Rival]:
    """Another client of the same database."""
    connection = await asyncpg.connect(postgres_server.address(database))
    yield connection
    await connection.close()


@pytest.fixture
async def postgres_store(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> AsyncIterator[SqlStore]:
    sizes = PoolSizes(work=2, api=2)
    opened = await open_postgres(postgres_server.address(database), clock=clock, sizes=sizes)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> FakeTicker:
    return FakeTicker()


@pytest.fixture
def postgres_version(request: pytest.FixtureRequest) -> int:
    """Each test has one of them, always the same; together they have them all."""
    chosen: int | None = request.config.getoption("postgres")
    return chosen or VERSIONS[crc32(request.node.nodeid.encode()) % len(VERSIONS)]


@pytest.fixture(params=["sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: FakeTicker,
    postgres_version: int,
    postgres_servers: PostgresServers,
) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        opened: Store = await open_new_sqlite(tmp_path / "rota.db", clock=clock)
        yield opened
        await opened.close()
        return
    server = postgres_servers[postgres_version]
    database = await server.create()
    with ExitStack() as until:
        pooled = request.param == POOLED
        way = until.enter_context(pooler_before(server)) if pooled else server
        opened = await open_postgres(way.address(database), clock=clock)
        yield opened
        await opened.close()
    await server.drop(database)


@pytest.fixture
def published(store: Store) -> list[Wakes]:
    """Whom each write of the test concerned, the latest last."""
    assert isinstance(store, SqlStore)
    published: list[Wakes] = []
    store.publish_with(published.append)
    return published


@pytest.fixture
def scene(store: Store, clock: FakeTicker) -> Scene:
    return Scene(store, clock)


@pytest.fixture
def carts(scene: Scene) -> CartScene:
    return CartScene(scene)


@pytest.fixture
async def job(scene: Scene) -> JobId:
    """What the items of a cart run."""
    return await scene.job()


@pytest.fixture
async def worker(scene: Scene) -> SessionId:
    """One with room for all of them."""
    return await scene.worker(slots=1_000)
