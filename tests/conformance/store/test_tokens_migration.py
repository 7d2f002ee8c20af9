"""A store of the release before, with tokens and jobs of several projects, goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import resources
from pathlib import Path

import asyncpg
import pytest

from rota.domain.access import INSTALLATION, Role, everywhere
from rota.ports.records import JobQuery, NewToken
from rota.ports.store import Store
from rota.store.postgres.opening import open_postgres
from rota.store.sqlite.driver import connect
from rota.store.sqlite.opening import open_sqlite
from testkit.builders import new_job
from testkit.clock import FakeTicker
from testkit.identity import make_project
from testkit.new_stores import open_new_sqlite
from tests.conformance.store.conftest import PostgresServers

pytestmark = pytest.mark.anyio

PROJECTS = ("default", "etl", "web")
COPIED = ("job", "job_version", "schedule")
TOKENS = (  # id, name, role, digest, kind, pool
    ("t_1", "ci", "editor", "digest 1", "api", None),
    ("t_2", "ci", "admin", "digest 2", "api", None),
    ("t_3", "eyes", "viewer", "digest 3", "api", None),
    ("t_4", "node", "viewer", "digest 4", "worker", "gpu"),
)
INSERT_TOKEN = (
    "INSERT INTO token (id, name, role, digest, kind, created_by, created_at, pool)"
    " VALUES ({}, 'admin', 1, {})"
)
ENDED = (  # with more rights than the one of its name that is left
    "INSERT INTO token (id, name, role, digest, kind, created_by, created_at, revoked_at)"
    " VALUES ('t_5', 'eyes', 'admin', 'digest 5', 'api', 'admin', 1, 2)",
    "INSERT INTO token (id, name, role, digest, kind, created_by, created_at, expires_at)"
    " VALUES ('t_6', 'eyes', 'admin', 'digest 6', 'api', 'admin', 1, 2)",
)
Open = Callable[[], Awaitable[Store]]


def scripts(dialect: str) -> list[str]:
    """The migrations before the one that knows of principals."""
    folder = resources.files(f"rota.store.{dialect}") / "migrations"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    [at] = [number for number, file in enumerate(files) if file.name.endswith("_identity.sql")]
    return [file.read_text("utf-8") for file in files[:at]]


async def add_jobs(store: Store, clock: FakeTicker) -> None:
    await make_project(store, *PROJECTS[1:])  # whose rows are not copied: there were none
    for project in PROJECTS:
        job = replace(new_job(f"nightly-{project}", clock.instant), project=project)
        await store.save_jobs([job], removed=(), actor=f"author of {project}")


@pytest.fixture
async def old_sqlite(tmp_path: Path, clock: FakeTicker) -> Open:
    new = await open_new_sqlite(tmp_path / "new.db", clock=clock)
    await add_jobs(new, clock)
    await new.close()
    path = tmp_path / "old.db"
    with closing(connect(path)) as old:
        migrations = scripts("sqlite")
        for script in migrations:
            old.executescript(script)
        old.execute(f"PRAGMA user_version = {len(migrations)}")
        old.execute("ATTACH ? AS new", (str(tmp_path / "new.db"),))
        for table in COPIED:
            names = ", ".join(_columns(old, table))
            old.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM new.{table}")
        marks = INSERT_TOKEN.format("?, ?, ?, ?, ?", "?")
        old.executemany(marks, TOKENS)
        for statement in ENDED:
            old.execute(statement)
    return lambda: open_sqlite(path, clock=clock)


def _columns(connection: sqlite3.Connection, table: str) -> Sequence[str]:
    return [row["name"] for row in connection.execute(f"PRAGMA main.table_info({table})")]


@pytest.fixture
async def old_postgres(
    postgres_servers: PostgresServers, postgres_version: int, clock: FakeTicker
) -> Open:
    server = postgres_servers[postgres_version]
    database = await server.create()
    new = await open_postgres(server.address(database), clock=clock)
    await add_jobs(new, clock)
    await new.close()
    await server.execute("DROP DATABASE IF EXISTS old_identity")
    await server.execute("CREATE DATABASE old_identity")
    source = await asyncpg.connect(server.address(database))
    old = await asyncpg.connect(server.address("old_identity"))
    migrations = scripts("postgres")
    for script in migrations:
        await old.execute(script)
    await old.execute(
        "INSERT INTO meta (key, value) VALUES ('schema', $1)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        str(len(migrations)),
    )
    for table in COPIED:
        columns = await old.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_name = $1"
            " AND is_generated = 'NEVER' ORDER BY ordinal_position",
            table,
        )
        names = [row["column_name"] for row in columns]
        rows = await source.fetch(f"SELECT {', '.join(names)} FROM {table}")
        await old.copy_records_to_table(table, records=[tuple(row) for row in rows], columns=names)
    marks = INSERT_TOKEN.format("$1, $2, $3, $4, $5", "$6")
    await old.executemany(marks, TOKENS)
    for statement in ENDED:
        await old.execute(statement)
    await source.close()
    await old.close()
    await server.drop(database)
    return lambda: open_postgres(server.address("old_identity"), clock=clock)


@pytest.fixture(params=["sqlite", "postgres"])
def open_old(request: pytest.FixtureRequest) -> Open:
    opening: Open = request.getfixturevalue(f"old_{request.param}")
    return opening


async def test_tokens_keep_their_role_in_all_projects(open_old: Open) -> None:
    store = await open_old()

    found = {number: await store.token_by_digest(f"digest {number}") for number in range(1, 5)}
    await store.close()

    for number, role in ((1, Role.EDITOR), (2, Role.ADMIN), (3, Role.VIEWER)):
        token = found[number]
        assert token is not None
        assert token.principal_kind == "service"
        assert token.rights.installation_role is role
        assert [token.rights.role_in(project) for project in PROJECTS] == [role] * 3
    worker = found[4]
    assert worker is not None
    assert (worker.token.kind, worker.token.pool) == ("worker", "gpu")
    assert worker.principal_kind == "worker"
    assert worker.rights.by_scope() == {}


async def test_tokens_that_have_ended_give_nobody_a_role(open_old: Open) -> None:
    store = await open_old()

    bindings = {each.principal.handle: each.role for each in await store.bindings()}
    await store.close()

    assert bindings == {"ci": Role.ADMIN, "eyes": Role.VIEWER}


async def test_projects_in_use_exist_and_their_jobs_are_there(open_old: Open) -> None:
    store = await open_old()

    exist = await store.existing_projects([*PROJECTS, "nope"])
    jobs = await store.jobs(JobQuery(project=None))
    own = await store.jobs(JobQuery(project="etl"))
    await store.close()

    assert exist == set(PROJECTS)
    assert [job.project for job in jobs] == [*PROJECTS]
    assert [job.name for job in own] == ["nightly-etl"]


async def test_names_of_the_past_are_taken_and_may_get_another_token(open_old: Open) -> None:
    store = await open_old()
    fresh = NewToken(
        "t_new",
        "ci",
        Role.VIEWER,
        "digest new",
        "api",
        "admin",
        None,
        principal="ci",
        project="etl",
        given_by=everywhere(Role.ADMIN),
    )

    await store.add_token(fresh)
    found = await store.token_by_digest("digest new")
    await store.close()

    assert found is not None
    assert found.rights.projects() == ("etl",)
    assert found.rights.role_in("etl") is Role.VIEWER
    assert found.rights.role_at(INSTALLATION) is None
