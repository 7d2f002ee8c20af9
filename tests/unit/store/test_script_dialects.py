"""What PostgreSQL says differently is still the same statement, about the same tables."""

from __future__ import annotations

import re
import sqlite3
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import pytest

from rota.store.postgres.connections import _CACHED_STATEMENTS
from rota.store.script import Statement, expanded, load, shared_statements, statements_of
from rota.store.sqlite.opening import migrate

STORE = resources.files("rota.store")
SHARED = shared_statements()
WRITTEN = load(STORE.joinpath("postgres"))  # in full, where annotations do not do
OVERRIDES = {
    name: statement
    for name, statement in statements_of("postgres").items()
    if name not in SHARED or statement.text != SHARED[name].text
}
LOCKS = {name for name in OVERRIDES if name.startswith("lock_")}
POSTGRES_ONLY = {"end_transactions"}  # what a single machine has no need of
BATCHES = {
    name
    for name, statement in OVERRIDES.items()
    if "unnest(" in statement.text and not SHARED[name].columns
}


def sources() -> str:
    files = Path(str(STORE)).glob("*.py")
    return "\n".join(file.read_text("utf-8") for file in files)


def test_overrides_are_of_statements_that_exist() -> None:
    assert OVERRIDES.keys() - LOCKS - POSTGRES_ONLY <= SHARED.keys()


UPDATES = sorted(name for name in WRITTEN.keys() & SHARED.keys() if " SET " in SHARED[name].text)


def columns_set(text: str) -> set[str]:
    while (flat := re.sub(r"\([^()]*\)", "", text)) != text:
        text = flat
    body = re.split(r"\b(?:FROM|WHERE|RETURNING)\b", text.split(" SET ", 1)[1])[0]
    return {part.split("=")[0].strip() for part in body.split(",")}


@pytest.mark.parametrize("name", UPDATES)
def test_what_is_written_in_full_sets_the_same_columns(name: str) -> None:
    assert columns_set(WRITTEN[name].text) == columns_set(SHARED[name].text)


def test_a_connection_keeps_all_of_them_prepared() -> None:
    assert len(statements_of("postgres")) <= _CACHED_STATEMENTS


@pytest.mark.parametrize("name", sorted(OVERRIDES.keys() - LOCKS - POSTGRES_ONLY))
def test_an_override_takes_the_same_parameters(name: str) -> None:
    shared = {*SHARED[name].parameters, *SHARED[name].columns} - {"rows"}
    assert set(OVERRIDES[name].parameters) == shared


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_a_batch_takes_its_columns_in_the_order_of_the_shared_statement(name: str) -> None:
    assert OVERRIDES[name].parameters == SHARED[name].parameters


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_each_column_of_a_batch_has_a_type(name: str) -> None:
    text = OVERRIDES[name].text

    for parameter in OVERRIDES[name].parameters:
        assert re.search(rf":{parameter}::\w+\[\]", text), parameter


def test_every_lock_that_scripts_take_is_there_and_no_other() -> None:
    taken = set(re.findall(r"\block\(\s*\"(\w+)\"", sources()))
    chosen = set(re.findall(r"\"(\w+)\" if \w+ else \"(\w+)\"", sources()))

    assert {f"lock_{name}" for name in taken | {n for pair in chosen for n in pair}} >= LOCKS
    assert {f"lock_{name}" for name in taken} <= LOCKS


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_rows_are_locked_in_order(name: str) -> None:
    assert re.search(r"ORDER BY \w+ FOR ", OVERRIDES[name].text)


def test_every_statement_that_scripts_name_exists() -> None:
    named = set(re.findall(r"\b(?:query|change|Many)\(\s*\"(\w+)\"", sources()))

    assert named <= SHARED.keys()


def test_both_dialects_have_the_same_tables() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    migrate(connection)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    in_sqlite = {
        row["name"]: {column["name"] for column in columns_of(connection, row["name"])}
        for row in tables
    }
    connection.close()

    in_postgres = tables_in(STORE.joinpath("postgres", "migrations"))
    in_postgres["event"].remove("tick")  # orders transactions side by side; SQLite has one writer
    assert in_postgres == in_sqlite


def columns_of(connection: sqlite3.Connection, table: str) -> list[sqlite3.Row]:
    return connection.execute("SELECT name FROM pragma_table_info(?)", [table]).fetchall()


def tables_in(migrations: Traversable) -> dict[str, set[str]]:
    tables: dict[str, set[str]] = {}
    for file in sorted(migrations.iterdir(), key=lambda file: file.name):
        text = file.read_text("utf-8")
        table = r"CREATE (?:UNLOGGED )?TABLE (\w+) \((.*?)\n\)"
        for name, body in re.findall(table, text, re.DOTALL):
            tables[name] = set(re.findall(r"^    ([a-z]\w*)", body, re.MULTILINE))
        for name, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", text):
            tables[name].add(column)
    return tables


def test_attempts_are_fenced_in_every_dialect() -> None:
    statements = statements_of("postgres")
    for name in (
        "start_runs",
        "complete_runs",
        "end_attempt",
        "set_progress",
        "tell_notes",
        "note_commits",
    ):
        guard = statements[name].text.split("WHERE", 1)[1]
        assert {"attempt", "session", "state"} <= set(re.findall(r"\w+", guard))


def test_what_is_written_in_full_is_not_annotated_as_well() -> None:
    annotated = {name for name, each in SHARED.items() if each.suffix or each.many}

    assert annotated.isdisjoint(WRITTEN)


def statement(text: str, *, suffix: str = "", many: str = "") -> Statement:
    parameters = tuple(dict.fromkeys(re.findall(r":(\w+)", text)))
    return Statement("test", text, parameters, suffix, many)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        (
            statement("SELECT id FROM run WHERE id = ANY(:ids)", suffix="ORDER BY id FOR SHARE"),
            "SELECT id FROM run WHERE id = ANY(:ids) ORDER BY id FOR SHARE",
        ),
        (
            statement(
                "INSERT INTO t (a, b) VALUES (:a, :b) ON CONFLICT DO NOTHING",
                many="a text, b bigint",
            ),
            "INSERT INTO t (a, b) SELECT * FROM unnest(:a::text[], :b::bigint[])"
            " ON CONFLICT DO NOTHING",
        ),
        (
            statement(
                "INSERT INTO t (a, b, c) VALUES (:a, 'x', :c)",
                many="a text, c float8; ORDER BY c, a",
            ),
            "INSERT INTO t (a, b, c) SELECT new.a, 'x', new.c"
            " FROM unnest(:a::text[], :c::float8[]) AS new (a, c) ORDER BY c, a",
        ),
        (
            statement(
                "UPDATE run SET queued_at = :now, gate_job = job_id\n"
                "WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED')",
                many="now bigint, id text",
            ),
            "UPDATE run SET queued_at = new.now, gate_job = job_id"
            " FROM unnest(:now::bigint[], :id::text[]) AS new (now, id)"
            " WHERE run.id = new.id AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED')",
        ),
        (
            statement(
                "UPDATE cart_item SET cause = :cause WHERE number = :number AND state = 'OPEN'",
                many="cause text, number integer",
            ),
            "UPDATE cart_item SET cause = new.cause"
            " FROM unnest(:cause::text[], :number::integer[]) AS new (cause, number)"
            " WHERE cart_item.number = new.number AND cart_item.state = 'OPEN'",
        ),
    ],
)
def test_annotations_are_expanded(shared: Statement, expected: str) -> None:
    assert words(expanded(shared).text) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        statement("UPDATE t SET a = :a WHERE b = :b", many="b text, a text"),
        statement("UPDATE t SET a = :a WHERE b = :b", many="a text"),
        statement("DELETE FROM t WHERE b = :b", many="b text"),
    ],
)
def test_an_annotation_that_does_not_fit_its_statement_is_refused(wrong: Statement) -> None:
    with pytest.raises(ValueError, match="statement test"):
        expanded(wrong)


def test_ends_of_many_attempts_are_one_statement() -> None:
    text = words(statements_of("postgres")["end_attempt"].text)

    assert text.startswith("UPDATE run SET state = new.state, cause = new.cause, message = new.")
    assert text.endswith(
        "truncated, seq, attempt, session)"
        " WHERE run.seq = new.seq AND run.attempt = new.attempt AND run.session = new.session"
        " AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')"
    )
