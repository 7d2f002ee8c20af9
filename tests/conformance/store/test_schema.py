"""Migrating from empty gives the schema that is checked in, on every version."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rota.store.postgres.opening import open_postgres
from rota.store.sqlite.opening import migrate
from testkit.schemas import postgres_schema, sqlite_schema
from tests.conformance.store.conftest import VERSIONS, PostgresServers

pytestmark = pytest.mark.anyio

SCHEMAS = Path(__file__).parent / "schemas"
RENEW = "if the migration is meant: pytest --renew-schemas tests/conformance/store/test_schema.py"


def agreed(name: str, found: str, config: pytest.Config) -> str:
    """The text that is checked in; written first where that was asked for."""
    file = SCHEMAS / name
    if config.getoption("renew_schemas"):
        file.write_text(found, "utf-8")
    return file.read_text("utf-8")


def test_sqlite_migrated_from_empty_has_the_schema_that_is_checked_in(
    pytestconfig: pytest.Config,
) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    migrate(connection)
    connection.row_factory = None

    found = sqlite_schema(connection)
    connection.close()

    assert found.splitlines() == agreed("sqlite.sql", found, pytestconfig).splitlines(), RENEW


@pytest.mark.servers
@pytest.mark.parametrize("version", VERSIONS)
async def test_postgres_migrated_from_empty_has_the_schema_that_is_checked_in(
    postgres_servers: PostgresServers, version: int, pytestconfig: pytest.Config
) -> None:
    server = postgres_servers[version]
    await server.execute("CREATE DATABASE empty_schema")
    address = server.address("empty_schema")
    store = await open_postgres(address)
    await store.close()

    found = await postgres_schema(address)
    await server.drop("empty_schema")

    columns = [line.split()[1].split(".") for line in found.splitlines() if "column " in line[:7]]
    of = {
        table: {name for each, name in columns if each == table} for table in ("run", "active_run")
    }
    assert of["run"] == of["active_run"], "CREATE OR REPLACE the view: it keeps its columns"
    assert found.splitlines() == agreed("postgres.txt", found, pytestconfig).splitlines(), RENEW
