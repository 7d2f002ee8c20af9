"""The steps of `due_steps` on PostgreSQL."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import asyncpg

from bench.due_steps import Steps, fire_due, look_ahead, own_all_shards, rules_of
from bench.schedules import FAR_AWAY, TABLES, copies, define_one, job_id, timetable
from rota.domain.firing import FiringRules
from rota.domain.ids import instant, micros
from rota.domain.schedule import Timetable
from rota.ports.records import Ownership
from rota.ports.store import Store
from rota.store.postgres.opening import open_postgres
from testkit.servers.postgres import PostgresServer

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_PAYLOAD = "x" * 200  # a schedule is never alone in its row
_FILL_SECONDS = 1_800.0


class PostgresRotaSteps:
    """Rota's store, as the scheduler uses it."""

    def __init__(
        self, store: Store, ownership: Ownership, beside: Connection, rules: FiringRules
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._beside = beside  # the store, to prepare the steps
        self._rules = rules

    async def make_due(self, numbers: Iterable[int], due: datetime) -> None:
        jobs = [job_id(number) for number in numbers]
        await self._beside.execute(
            "UPDATE schedule SET next_at = $1 WHERE job_id = ANY($2)",
            micros(due),
            jobs,
        )
        await look_ahead(self._store, self._ownership, due, len(jobs))

    async def step(self, now: datetime, limit: int) -> int:
        return await fire_due(self._store, self._ownership, self._rules, now, limit)


class PostgresBareSteps:
    """The least that SQL needs for it: two tables, an index, three statements, one commit."""

    def __init__(self, connection: Connection, table: Timetable) -> None:
        self._connection = connection
        self._table = table

    async def fill(self, count: int) -> None:
        """So many schedules, none of them due before `FAR_AWAY`."""
        await self._connection.execute(
            """
            CREATE TABLE bare_schedule (id BIGINT PRIMARY KEY, payload TEXT, next_at BIGINT);
            CREATE TABLE bare_run (
                id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, schedule BIGINT, due_at BIGINT);
            """
        )
        far_away = micros(FAR_AWAY)
        await self._connection.copy_records_to_table(
            "bare_schedule",
            records=((number, _PAYLOAD, far_away + number) for number in range(count)),
            timeout=_FILL_SECONDS,
        )
        await self._connection.execute(
            "CREATE INDEX bare_due ON bare_schedule (next_at)", timeout=_FILL_SECONDS
        )

    async def make_due(self, numbers: Iterable[int], due: datetime) -> None:
        await self._connection.execute(
            "UPDATE bare_schedule SET next_at = $1 WHERE id = ANY($2)", micros(due), list(numbers)
        )

    async def step(self, now: datetime, limit: int) -> int:
        connection = self._connection
        async with connection.transaction():
            due = await connection.fetch(
                "SELECT id, next_at FROM bare_schedule WHERE next_at < $1 ORDER BY next_at LIMIT $2"
                " FOR UPDATE SKIP LOCKED",
                micros(now),
                limit,
            )
            ids, times = [row["id"] for row in due], [row["next_at"] for row in due]
            await connection.execute(
                "UPDATE bare_schedule SET next_at = move.next_at"
                " FROM unnest($1::bigint[], $2::bigint[]) AS move (id, next_at)"
                " WHERE bare_schedule.id = move.id",
                ids,
                [self._next(time) for time in times],
            )
            await connection.execute(
                "INSERT INTO bare_run (schedule, due_at)"
                " SELECT * FROM unnest($1::bigint[], $2::bigint[])",
                ids,
                times,
            )
        return len(due)

    def _next(self, due: int) -> int:
        following = self._table.next_after(instant(due))
        assert following is not None
        return micros(following)


@asynccontextmanager
async def postgres_steps(server: PostgresServer, count: int) -> AsyncIterator[tuple[Steps, Steps]]:
    """Rota's steps and the bare ones, in one database with so many schedules for each."""
    table = timetable()
    name = await server.create()
    store = await open_postgres(server.address(name))
    beside = await asyncpg.connect(server.address(name))
    try:
        await _fill(store, beside, count)
        bare = PostgresBareSteps(beside, table)
        await bare.fill(count)
        await beside.execute("VACUUM ANALYZE", timeout=_FILL_SECONDS)
        await beside.execute("CHECKPOINT", timeout=_FILL_SECONDS)
        ownership = await own_all_shards(store)
        yield PostgresRotaSteps(store, ownership, beside, rules_of(table)), bare
    finally:
        await beside.close()
        await store.close()
        await server.drop(name)


async def _fill(store: Store, beside: Connection, count: int) -> None:
    """One job is defined as any job is; the others are copies of its rows."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        await define_one(store, Path(folder))
    for table, columns in TABLES.items():
        [row] = await beside.fetch(f"DELETE FROM {table} RETURNING *")  # noqa: S608 (our own name)
        await beside.copy_records_to_table(
            table,
            records=(tuple(copy.values()) for copy in copies(dict(row), columns, count)),
            columns=list(row.keys()),
            timeout=_FILL_SECONDS,
        )
