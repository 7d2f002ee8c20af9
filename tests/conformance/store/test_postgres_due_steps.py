"""A due step looks at as many pages of PostgreSQL among very many schedules as among few."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rota.domain.ids import JobId, micros
from rota.store.postgres.opening import open_postgres
from testkit.builders import ALL_SHARDS, MINUTE, Scene
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.test_postgres_peak import as_firing
from tests.meter import Meter

pytestmark = pytest.mark.anyio

FEW, MANY = 5_000, 100_000
DUE = 100  # so few that going through all schedules once would be seen
COPIES = """
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at,
    enabled)
SELECT 'j_' || n, project, 'job-' || n, version, n % 256, set_name, created_by, created_at,
    updated_at, enabled
FROM job CROSS JOIN generate_series({first}, {last}) AS n WHERE id = '{job}';
INSERT INTO job_version SELECT 'j_' || n, version, document, digest, rules, created_by, created_at
FROM job_version CROSS JOIN generate_series({first}, {last}) AS n WHERE job_id = '{job}';
INSERT INTO schedule (job_id, shard, next_at, anchor, version)
SELECT 'j_' || n, n % 256, next_at + n, anchor, version
FROM schedule CROSS JOIN generate_series({first}, {last}) AS n WHERE job_id = '{job}';
VACUUM ANALYZE
"""
MOVE = """
UPDATE schedule SET next_at = {due_at}
WHERE job_id IN (SELECT 'j_' || n FROM generate_series({first}, {count}, {step}) AS n)
"""


class ManySchedules:
    """Copies of a job, none of them due by itself."""

    def __init__(self, server: PostgresServer, database: str, clock: FakeTicker) -> None:
        self._server = server
        self._database = database
        self._clock = clock
        self._meter = Meter(server, database)
        self._count = 0
        self._steps = 0

    async def grow_to(self, count: int, job: JobId) -> None:
        bounds = {"first": self._count + 1, "last": count}
        for statement in COPIES.format(job=job, **bounds).split(";"):
            await self._server.execute(statement, self._database)
        self._count = count

    async def pages_of_step(self) -> int:
        """What firing some looks at that are due at one instant, scattered over all of them.

        They are others each time.
        """
        self._steps += 1
        due_at, step = micros(self._clock.instant), self._count // DUE
        move = MOVE.format(due_at=due_at, first=self._steps, count=self._count, step=step)
        await self._server.execute(move, self._database)
        before = await self._meter.pages()
        async with self.opened() as scene:
            due = await scene.store.due_schedules(scene.clock.instant + MINUTE, DUE, ALL_SHARDS)
            fired = await scene.fire_all([as_firing(each) for each in due])
        assert len(fired.accepted) == DUE
        return await self._meter.pages() - before

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Scene]:
        store = await open_postgres(self._server.address(self._database), clock=self._clock)
        yield Scene(store, self._clock)
        await store.close()


async def test_a_due_step_among_many_schedules_costs_what_it_does_among_few(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    schedules = ManySchedules(postgres_server, database, clock)
    async with schedules.opened() as scene:
        job_id = await scene.job(next_at=clock.instant + 60 * MINUTE)

    await schedules.grow_to(FEW, job_id)
    await schedules.pages_of_step()  # with its first one a server takes its shards
    among_few = await schedules.pages_of_step()
    await schedules.grow_to(MANY, job_id)
    among_many = await schedules.pages_of_step()

    assert among_many < 1.3 * among_few
