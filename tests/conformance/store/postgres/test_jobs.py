"""Jobs on PostgreSQL: one more costs the same, however many there are."""

from __future__ import annotations

import pytest

from rota.store.postgres.opening import open_postgres
from testkit.builders import new_job
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.conftest import PostgresServers
from tests.meter import Meter

pytestmark = pytest.mark.anyio

SOME = 500


@pytest.fixture
def postgres_server(postgres_servers: PostgresServers) -> PostgresServer:
    """Later ones find the names of a list by the index, too."""
    return postgres_servers[16]


async def test_a_file_of_jobs_is_saved_at_the_same_cost_whatever_is_there(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    meter = Meter(postgres_server, database)

    async def pages_of_file(number: int) -> int:
        before = await meter.pages()
        store = await open_postgres(postgres_server.address(database), clock=clock)
        jobs = [new_job(f"job-{number}-{n}", clock.instant) for n in range(SOME)]
        await store.save_jobs(jobs, actor="editor")
        await store.close()
        return await meter.pages() - before

    _, second, _, fourth = [await pages_of_file(number) for number in range(4)]

    assert fourth < 1.2 * second
