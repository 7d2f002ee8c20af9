"""No hot statement of PostgreSQL reads a big table from end to end, whatever the statistics say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import product
from typing import Any

import asyncpg
import pytest

from rota.store.postgres.driver import BEGIN_READ, BEGIN_WRITE, PINNED, Prepared
from rota.store.script import statements_of
from testkit.servers.postgres import PostgresServer

pytestmark = pytest.mark.anyio

BIG = {"attempt", "cart_item", "event", "job", "job_version", "run", "schedule"}
# Indexes over what is not final, or waits for something: they stay small.
SMALL = {
    "job_pause",
    "job_stuck",
    "run_blocked",
    "run_deadline",
    "run_drop",
    "run_eligible",
    "run_gated",
    "run_held",
    "run_objective",
    "run_output_pending",
    "run_queued",
    "run_unknown",
    "attempt_output_pending",
    "schedule_waiting",
}
# They go through a history or a list from one end, and stop at their limit.
BOUNDED = {
    "due_schedules",
    "first_of_latest_events",
    "last_event",
    "select_events",
    "select_events_of",
    "select_jobs",
    "select_runs",
}
# Asked where a name is not found (deleted jobs have no index of their names), by `rota doctor`, and
# when a pool is given to projects: all jobs are looked at then.
RARE = {"deleted_job", "orphaned_jobs", "rules_of_pool"}
# They change many rows at once, each by its key; the small indexes would be read once for each, and
# so would be all schedules that are due at the same time.
BATCHES = (
    "advance_schedule",
    "block_on_keys",
    "block_run",
    "claim_runs",
    "complete_runs",
    "end_attempt",
    "end_waiting_run",
    "let_runs_go",
    "promise_key",
    "queue_runs",
    "set_progress",
    "start_runs",
)
# Only in transactions of people, and in reads, which are planned each time. What is written
# elsewhere keeps its plan, even one that was made while nothing was stored.
PLANNED_EACH_TIME = {
    "coming_jobs",
    "coming_jobs_of_projects",
    "congested_jobs",
    "delete_jobs",
    "dependencies_of",
    "documents_with_files",
    "ended_pauses",
    "key_holders",
    "next_pause_end",
    "pools_named",
    "select_jobs_by_calendar",
    "select_jobs_by_id",
    "set_job_flags",
    "update_job",
    "waiting_jobs",
}
STATEMENTS = {name: Prepared(s) for name, s in statements_of("postgres").items()}
READ = {name for name in STATEMENTS if name.startswith("select_")}
LOAD = """
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at,
    enabled)
SELECT 'j_' || n, 'default', 'job-' || n, 1, n % 256, 'file', 'user', n, n, 1
FROM generate_series(1, 5000) AS n;
INSERT INTO job_version SELECT id, 1, '{}', '', '{}', 'user', 1 FROM job;
INSERT INTO schedule (job_id, shard, next_at, anchor, version)
SELECT id, shard, created_at * 1000000, 0, 1 FROM job;
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, due_at, release_at,
    priority, pool, chain, shape, delivery, max_attempts, expected, created_by, created_at, session,
    gate_job)
SELECT 'r_' || n, 'default', 'j_' || (n % 5000), 'job', 1, 'schedule', 'COMPLETED', n, n, 5,
    'default', 'default/5/default', '', 'at_least_once', 1, 1.0, 'user', n, 'w_' || (n % 3),
    'j_' || (n % 5000)
FROM generate_series(1, 20000) AS n;
INSERT INTO attempt (run_id, number, session, worker, result, claimed_at, ended_at, message,
    cpu_seconds, max_memory, output_state, output_bytes, output_lines, truncated)
SELECT id, 1, session, 'worker', 'FAILED', 1, 1, '', 0, 0, 'none', 0, 0, 0 FROM run;
INSERT INTO event SELECT n * 65536, 'run.finished', n, 'w_1', '', '[]', '{}'
FROM generate_series(1, 20000) AS n;
INSERT INTO cart_item (cart, number, key, wave, job_id, job_version, state, run)
SELECT 'c_1', n, 'item-' || n, 1, 'j_1', 1, 'COMPLETED', 'r_' || n
FROM generate_series(1, 20000) AS n;
"""
LIVE = "UPDATE run SET state = 'QUEUED' WHERE seq % 20 = 0;"
CROWDS = """
UPDATE run SET state = 'SCHEDULED', eligible_at = 5 WHERE seq % 3 = 0;
UPDATE run SET state = 'BLOCKED', blocked_on = '[]' WHERE seq % 3 = 1;
"""


NOTHING = "nothing stored"


@pytest.fixture(scope="module", params=[NOTHING, "never", "while empty", "while idle", "just now"])
def analyzed(request: pytest.FixtureRequest) -> str:
    """When the statistics were made."""
    when: str = request.param
    return when


@pytest.fixture
async def connection(
    analyzed: str, postgres_server: PostgresServer
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    database = await postgres_server.create()
    opened = await asyncpg.connect(postgres_server.address(database), statement_cache_size=0)
    steps = {"while empty": 0, "while idle": 1, "just now": 2}
    for number, statement in enumerate(("SELECT", LOAD, LIVE) if analyzed != NOTHING else ()):
        await opened.execute(statement)
        if steps.get(analyzed) == number:
            await opened.execute("ANALYZE")
    yield opened
    await opened.close()
    await postgres_server.drop(database)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_keys_and_small_indexes_lead(
    connection: asyncpg.Connection[asyncpg.Record], mode: str, analyzed: str
) -> None:
    others = BOUNDED | RARE | (PLANNED_EACH_TIME if analyzed == NOTHING else set())
    scans = {
        name: found
        for name in sorted(STATEMENTS.keys() - others)
        if (found := list(_scans(await _plan(connection, name, mode))))
    }

    assert scans == {}


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_batches_find_their_rows_one_by_one(
    connection: asyncpg.Connection[asyncpg.Record], mode: str
) -> None:
    for name in BATCHES:
        [index] = _indexes(await _plan(connection, name, mode))

        assert index in ("run_pkey", "run_id_key", "schedule_pkey"), name


async def test_lists_are_read_from_their_end_without_sorting(
    connection: asyncpg.Connection[asyncpg.Record], analyzed: str
) -> None:
    # As long as nothing is known of the runs, the filters of people seem to leave next to none.
    guessed = {"select_runs"} if analyzed in (NOTHING, "never", "while empty") else set()
    for name in BOUNDED - guessed:
        plan = await _plan(connection, name, "force_generic_plan")

        assert "Sort" not in set(_kinds(plan)), name


async def test_of_a_crowd_those_that_go_next_are_read_in_their_order(
    connection: asyncpg.Connection[asyncpg.Record], analyzed: str
) -> None:
    await connection.execute(CROWDS)
    if analyzed == "just now":
        await connection.execute("ANALYZE")
    names = ("eligible_jobs", "eligible_runs", "jobs_of_waiters", "waiters_to_release")
    for name, mode in product(names, ("force_generic_plan", "force_custom_plan")):
        plan = await _plan(connection, name, mode)

        assert list(_indexes(plan)) in (["run_eligible"], ["run_blocked"]), name
        assert not {"Bitmap Heap Scan", "Incremental Sort"} & set(_kinds(plan)), name


async def _plan(
    connection: asyncpg.Connection[asyncpg.Record], name: str, mode: str
) -> Mapping[str, Any]:
    """How a statement would be run, with made-up values for its parameters."""
    write = BEGIN_WRITE if name in PLANNED_EACH_TIME else f"{BEGIN_WRITE}; {PINNED}"
    await connection.execute(BEGIN_READ if name in READ else write)
    try:
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        await connection.execute(f"PREPARE statement AS {STATEMENTS[name].text}")
        types = await connection.fetchval(
            "SELECT parameter_types FROM pg_prepared_statements WHERE name = 'statement'"
        )
        prepared = STATEMENTS[name]
        values = ", ".join(
            "'{1, 2}'" if parameter in prepared.literals else _VALUES[str(kind)]
            for parameter, kind in zip(prepared.parameters, types, strict=True)
        )
        execute = f"EXECUTE statement ({values})" if types else "EXECUTE statement"
        told = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {execute}")
        plan: Mapping[str, Any] = json.loads(told)[0]["Plan"]
        return plan
    finally:
        await connection.execute("ROLLBACK; DEALLOCATE ALL")


_VALUES = {
    "text": "'[]'",
    "text[]": "ARRAY['x', 'y']",
    "integer": "1",
    "integer[]": "ARRAY[1, 1]",
    "bigint": "10",
    "bigint[]": "ARRAY[1, 2]::bigint[]",
    "double precision": "1.0",
    "double precision[]": "ARRAY[1.0, 2.0]::float8[]",
    "bytea[]": "ARRAY[NULL, NULL]::bytea[]",
}


def _scans(plan: Mapping[str, Any]) -> Iterator[str]:
    """Steps that read a whole table, or a whole index that grows with history."""
    table, index = plan.get("Relation Name"), plan.get("Index Name")
    is_led = "Index Cond" in plan or "Recheck Cond" in plan or index in SMALL
    if table in BIG and "Scan" in plan["Node Type"] and not is_led:
        yield f"{plan['Node Type']} on {table} {index or ''}"
    for step in plan.get("Plans", ()):
        yield from _scans(step)


def _indexes(plan: Mapping[str, Any]) -> Iterator[str]:
    """The indexes that lead to runs and schedules."""
    index = plan.get("Index Name", "")
    if index.startswith(("run_", "schedule_")):
        yield index
    for step in plan.get("Plans", ()):
        yield from _indexes(step)


def _kinds(plan: Mapping[str, Any]) -> Iterator[str]:
    """The kinds of steps."""
    yield plan["Node Type"]
    for step in plan.get("Plans", ()):
        yield from _kinds(step)
