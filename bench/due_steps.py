"""One step of a scheduler, find what is due and advance it: in Rota's store, and in bare SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from bench.schedules import job_id
from rota.domain.firing import FiringRules
from rota.domain.ids import instant, micros, new_server_id
from rota.domain.schedule import Timetable
from rota.domain.shards import SCHEDULER
from rota.domain.spec import Misfire
from rota.operations.firing import MISFIRE_GRACE, plan_firing
from rota.ports.records import NewServer, Ownership
from rota.ports.store import ScheduleStore, ServerStore, Store

_MOMENT = timedelta(microseconds=1)
_PAYLOAD = "x" * 200  # a schedule is never alone in its row


class Steps(Protocol):
    """A scheduler's step, to be taken again and again."""

    async def make_due(self, numbers: Iterable[int], due: datetime) -> None:
        """Bring their next due time to an instant; what a scheduler reads before it is read."""
        ...

    async def step(self, now: datetime, limit: int) -> int:
        """Insert the runs that are due and advance their schedules; returns how many."""
        ...


async def own_all_shards(store: ServerStore) -> Ownership:
    """Be the only server of a store."""
    server = NewServer(new_server_id(), "bench", timedelta(days=1), (SCHEDULER,), is_alone=True)
    await store.join(server)
    holding = await store.keep_shards(server.id, stopping=False)
    return Ownership(server.id, holding.shards)


async def fire_due(
    store: ScheduleStore, ownership: Ownership, rules: FiringRules, now: datetime, limit: int
) -> int:
    """Find, plan and fire; returns how many schedules moved on.

    The scheduler has found them before, and fires a hundred at once.
    """
    firings = [
        plan_firing(due, rules, rules.timetable.next_after(due.next_at), now)
        for due in await store.due_schedules(now, limit, ownership.epochs)
    ]
    return len((await store.fire(firings, ownership)).accepted)


async def look_ahead(store: Store, ownership: Ownership, due: datetime, limit: int) -> None:
    """Read what the scheduler reads some seconds before a due time. The step looks for it again."""
    upcoming = await store.due_schedules(due + _MOMENT, limit, ownership.epochs)
    await store.documents([(each.job_id, each.job_version) for each in upcoming])


def rules_of(table: Timetable) -> FiringRules:
    return FiringRules(table, Misfire(), MISFIRE_GRACE)


class RotaSteps:
    """Rota's store, as the scheduler uses it."""

    def __init__(self, store: Store, ownership: Ownership, path: Path, table: Timetable) -> None:
        self._store = store
        self._ownership = ownership
        self._connection = sqlite3.connect(path)  # beside the store, to prepare the steps
        self._rules = rules_of(table)

    async def make_due(self, numbers: Iterable[int], due: datetime) -> None:
        rows = [(micros(due), job_id(number)) for number in numbers]
        with self._connection:
            self._connection.executemany("UPDATE schedule SET next_at = ? WHERE job_id = ?", rows)
        await look_ahead(self._store, self._ownership, due, len(rows))

    async def step(self, now: datetime, limit: int) -> int:
        return await fire_due(self._store, self._ownership, self._rules, now, limit)

    def close(self) -> None:
        self._connection.close()


class BareSteps:
    """The least that SQL needs for it: two tables, an index, three statements, one commit."""

    def __init__(self, path: Path, count: int, table: Timetable, far_away: datetime) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._table = table
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = OFF")
        execute("CREATE TABLE schedule (id INTEGER PRIMARY KEY, payload TEXT, next_at INTEGER)")
        execute("CREATE TABLE run (id INTEGER PRIMARY KEY, schedule INTEGER, due_at INTEGER)")
        execute("BEGIN")
        rows = ((number, _PAYLOAD, micros(far_away) + number) for number in range(count))
        self._connection.executemany("INSERT INTO schedule VALUES (?, ?, ?)", rows)
        execute("CREATE INDEX schedule_due ON schedule (next_at)")
        execute("COMMIT")
        execute("PRAGMA wal_checkpoint(TRUNCATE)")
        execute("PRAGMA synchronous = FULL")

    async def make_due(self, numbers: Iterable[int], due: datetime) -> None:
        rows = [(micros(due), number) for number in numbers]
        self._connection.execute("BEGIN")
        self._connection.executemany("UPDATE schedule SET next_at = ? WHERE id = ?", rows)
        self._connection.execute("COMMIT")

    async def step(self, now: datetime, limit: int) -> int:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        due = connection.execute(
            "SELECT id, next_at FROM schedule WHERE next_at < ? ORDER BY next_at LIMIT ?",
            (micros(now), limit),
        ).fetchall()
        moves = [(self._next(next_at), number) for number, next_at in due]
        connection.executemany("UPDATE schedule SET next_at = ? WHERE id = ?", moves)
        connection.executemany("INSERT INTO run (schedule, due_at) VALUES (?, ?)", due)
        connection.execute("COMMIT")
        return len(due)

    def close(self) -> None:
        self._connection.close()

    def _next(self, due: int) -> int:
        following = self._table.next_after(instant(due))
        assert following is not None
        return micros(following)
