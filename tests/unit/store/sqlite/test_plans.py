"""No hot statement reads the run table from end to end, whatever the statistics say."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.store.script import Statement, shared_statements
from rota.store.sqlite.driver import connect, in_sqlite, in_sqlite_for_one
from rota.store.sqlite.opening import migrate

STATEMENTS = shared_statements()
# They list history from its newest end and stop at their limit.
BOUNDED = {"select_runs_of_projects"}
SMALL_INDEXES = {
    "run_blocked",
    "run_deadline",
    "run_eligible",
    "run_gated",
    "run_held",
    "run_output_pending",
    "run_queued",
    "run_unknown",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a long history, and nothing live."""
    path = tmp_path_factory.mktemp("plans") / "rota.db"
    connection = connect(path)
    migrate(connection)
    connection.execute(
        """
        WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000)
        INSERT INTO run (id, project, job_id, job, job_version, trigger, state, due_at, release_at,
            priority, pool, chain, shape, delivery, max_attempts, expected, created_by, created_at,
            session, gate_job)
        SELECT 'r_' || n, 'default', 'j_' || (n % 1000), 'job', 1, 'schedule', 'COMPLETED', n, n, 5,
            'default', 'default/5/default', '', 'at_least_once', 1, 1.0, 'user', n, 'w_1',
            'j_' || (n % 1000)
        FROM numbers
        """
    )
    connection.execute(
        """
        WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000)
        INSERT INTO cart_item (cart, number, key, wave, job_id, job_version, state, run)
        SELECT 'c_1', n, 'item-' || n, 1 + n / 50000, 'j_1', 1, 'COMPLETED', 'r_' || n FROM numbers
        """
    )
    connection.close()
    return path


@pytest.fixture(params=["empty", "stale"])
def connection(file: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """Without statistics, as in production, and with those of a moment when nothing was live."""
    opened = connect(file)
    opened.execute("BEGIN")
    if request.param == "stale":
        opened.execute("ANALYZE")
    yield opened
    opened.execute("ROLLBACK")
    opened.close()


def plan(connection: sqlite3.Connection, statement: Statement) -> list[str]:
    return explained(connection, in_sqlite(statement), statement)


def explained(connection: sqlite3.Connection, text: str, statement: Statement) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", dict.fromkeys(statement.parameters))
    return [row["detail"] for row in rows]


def scans(steps: list[str]) -> list[str]:
    """Steps that read all of the run table, or all of an index that grows with history."""
    return [
        step
        for step in steps
        if (match := re.match(r"SCAN (?:run|other|head|active_run)\b(?:.* INDEX (\w+))?", step))
        and match.group(1) not in SMALL_INDEXES
        and "active_run" not in step
    ]


@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - BOUNDED))
def test_no_statement_scans_the_runs(connection: sqlite3.Connection, name: str) -> None:
    statement = STATEMENTS[name]

    for_one = explained(connection, in_sqlite_for_one(statement), statement)

    assert scans(plan(connection, statement)) + scans(for_one) == []


@pytest.mark.parametrize(
    ("name", "leads"),
    [
        ("active_runs", "run_gated (gate_job=? AND state=?)"),
        ("carts_due", "cart_open (shard=?)"),
        ("carts_due", "cart_item_open (cart=? AND state=?)"),
        ("count_pending", "cart_item_state (cart=? AND state=? AND wave=?)"),
        ("ended_items", "cart_item_open (cart=? AND state=?)"),
        ("gates_of_cart", "cart_item_open (cart=? AND state=?)"),
        ("open_runs", "cart_item_open (cart=? AND state=?)"),
        ("pending_items", "cart_item_state (cart=? AND state=? AND wave=?)"),
        ("pending_wave", "cart_item_state (cart=? AND state=?)"),
        ("running_runs_of_cart", "cart_item_open (cart=? AND state=?)"),
        ("awaited_jobs", "dependency_upstream (project=? AND upstream=?)"),
        ("backfilled_due_runs", "run_backfilled (job_id=? AND due_at>? AND due_at<?)"),
        ("chain_heads", "run_queued (chain=? AND seq>?)"),
        ("claim_runs", "INTEGER PRIMARY KEY (rowid=?)"),
        ("complete_runs", "sqlite_autoindex_run_1 (id=?)"),
        ("count_leased", "run_held (session=?)"),
        ("due_schedules", "schedule_due (next_at>? AND next_at<?)"),
        ("eligible_runs", "run_eligible (eligible_at>? AND eligible_at<?)"),
        ("end_attempt", "INTEGER PRIMARY KEY (rowid=?)"),
        ("jobs_of_waiters", "run_blocked (blocked_on>? AND blocked_on<?)"),
        ("let_runs_go", "INTEGER PRIMARY KEY (rowid=?)"),
        ("printing_fences", "sqlite_autoindex_run_1 (id=?)"),
        ("queue_runs", "INTEGER PRIMARY KEY (rowid=?)"),
        ("runs_to_change", "sqlite_autoindex_run_1 (id=?)"),
        ("select_runs_of_backfill", "run_backfill (backfill=? AND seq<?)"),
        ("select_active_runs", "run_open (project=? AND seq<?)"),
        ("select_active_runs_of_project", "run_open (project=? AND seq<?)"),
        ("select_runs", "run_project (project=? AND seq<?)"),
        ("select_runs_of_project", "run_project (project=? AND seq<?)"),
        ("select_runs_of_cart", "run_cart (cart=? AND seq<?)"),
        ("select_jobs_of_user", "job_creator (created_by=?"),
        ("select_carts_of_user", "cart_creator (created_by=?"),
        ("select_runs_of_job", "run_job (job_id=? AND seq<?)"),
        ("token_by_digest", "SEARCH token USING INDEX sqlite_autoindex_token_2 (digest=?)"),
        ("token_by_digest", "SEARCH principal USING PRIMARY KEY (handle=?)"),
        ("token_by_digest", "SEARCH login_session USING PRIMARY KEY (token=?)"),
        ("token_by_digest", "SEARCH binding USING PRIMARY KEY (principal=?)"),
        ("roles_of_groups", "principal_subject (kind=? AND issuer=? AND subject=?)"),
        ("start_runs", "sqlite_autoindex_run_1 (id=?)"),
        ("unfit_keys", "run_blocked (blocked_on>? AND blocked_on<?)"),
        ("waited_backfills", "run_blocked (blocked_on=?)"),
        ("waited_jobs", "run_blocked (blocked_on=?)"),
        ("waiters", "run_blocked (blocked_on=?)"),
        ("waiters_to_release", "run_blocked (blocked_on>? AND blocked_on<?)"),
        ("waiters_of_keys", "run_blocked (blocked_on=?)"),
        ("waiting_runs", "run_blocked (blocked_on=? AND seq>?)"),
    ],
)
def test_the_right_index_leads(connection: sqlite3.Connection, name: str, leads: str) -> None:
    statement = STATEMENTS[name]

    for text in (in_sqlite(statement), in_sqlite_for_one(statement)):
        steps = explained(connection, text, statement)
        assert any(leads in step for step in steps), steps


@pytest.mark.parametrize("name", ["count_at_gate", "block_queued_runs", "select_active_runs"])
def test_what_is_not_final_is_found_without_history(
    connection: sqlite3.Connection, name: str
) -> None:
    steps = plan(connection, STATEMENTS[name])

    assert not any("run_job" in step for step in steps), steps
