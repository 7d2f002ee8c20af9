"""A store of the release before, with tokens and work of three projects, goes on.

`former/` has dumps of two stores that the last commit before there were tenants (36b9891) made
through its own REST interface, at noon of the first day of 2026: in each project jobs with
schedules, calendars, limits and dependencies, one that was deleted, runs that have completed and
failed, are held by a worker, are queued and wait for a pool, and a cart; and `secrets.json` what
opens them. They are never made anew: that code is gone.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import asyncpg
import pytest

from rota.domain.access import INSTALLATION, Role, everywhere
from rota.domain.errors import Denied
from rota.domain.states import RunState
from rota.domain.walls import NEW_CLUSTER, WallDefaults
from rota.operations.engine import Engine
from rota.operations.principals import advice
from rota.operations.tokens import Caller, authenticate, authenticate_worker, log_in
from rota.ports.blobs import Blobs
from rota.ports.carts import CartQuery
from rota.ports.records import JobQuery, NewToken, RunQuery
from rota.ports.store import Store
from rota.ports.work import Fence, Hello
from rota.store.postgres.opening import open_postgres
from rota.store.sqlite.opening import open_sqlite
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.identity import disable
from testkit.new_stores import local_queue
from tests.conformance.store.conftest import PostgresServers

pytestmark = pytest.mark.anyio

FORMER = Path(__file__).with_name("former")
PROJECTS = ("default", "etl", "web")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
# Events are told once no older transaction is under way: these were numbered by another server.
PASS = """
DO $$ BEGIN
    WHILE pg_current_xact_id()::text::bigint <= (SELECT max(tick) FROM public.event)
    LOOP COMMIT; END LOOP;
END $$
"""
# Projects that one table alone knows; tokens that have ended by the clock of migrations, and a link
# that has not.
ONLY = """
INSERT INTO calendar (project, name, document, version, updated_by, updated_at)
SELECT 'calendars', name, document, version, updated_by, updated_at FROM calendar
WHERE project = 'web';
INSERT INTO declaration (kind, project, name, document, updated_by, updated_at)
SELECT kind, 'declarations', name, document, updated_by, updated_at FROM declaration
WHERE project = 'web';
INSERT INTO cart_template (project, name, version, document, digest, set_name, shard, anchor,
    updated_by, updated_at)
SELECT 'templates', name, version, document, digest, set_name, shard, anchor, updated_by, updated_at
FROM cart_template WHERE project = 'web';
INSERT INTO cart (id, project, name, shard, document, rules, state, items, created_by, created_at)
SELECT 'c_only', 'carts', name, shard, document, rules, state, items, created_by, created_at
FROM cart WHERE project = 'web';
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at,
    enabled, deleted_at)
SELECT 'j_only', 'jobs', name, version, shard, set_name, created_by, created_at, updated_at, 0, 1
FROM job WHERE project = 'web' AND name = 'dropped';
UPDATE token SET expires_at = 4102444800000000 WHERE expires_at IS NOT NULL;
INSERT INTO token (id, name, role, digest, kind, created_by, created_at, revoked_at, expires_at)
VALUES ('t_eyes', 'eyes', 'viewer', 'digest 1', 'api', 'admin', 1, NULL, NULL),
    ('t_eyes_2', 'eyes', 'admin', 'digest 2', 'api', 'admin', 1, 2, NULL),
    ('t_eyes_3', 'eyes', 'admin', 'digest 3', 'api', 'admin', 1, NULL, 2);
"""
KNOWN_BY_ONE = {"calendars", "declarations", "templates", "carts", "jobs"}
WORK = {  # of each project, by job and state
    ("tidy", RunState.COMPLETED),
    ("tidy", RunState.FAILED),
    ("tidy", RunState.PROCESSING),
    ("tidy", RunState.QUEUED),
    ("far", RunState.QUEUED),
}


@dataclass(frozen=True, slots=True)
class FormerStore:
    """A store that this release has opened and brought up to date."""

    store: Store
    clock: FakeTicker
    secrets: Mapping[str, str]

    @property
    def engine(self) -> Engine:
        return Engine(self.store, local_queue(self.store), cast("Blobs", None))

    def scene(self, project: str = "default") -> Scene:
        return Scene(self.store, self.clock, project)

    async def caller(self, name: str, *, is_cookie: bool = False) -> Caller:
        return await authenticate(self.engine, self.secrets[name], is_cookie=is_cookie)


@pytest.fixture(params=["sqlite", "postgres"])
async def former(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    postgres_version: int,
    postgres_servers: PostgresServers,
) -> AsyncIterator[FormerStore]:
    clock, dialect = FakeTicker(NOON), request.param
    dump = (FORMER / f"{dialect}.sql").read_text() + ONLY
    secrets = json.loads((FORMER / "secrets.json").read_text())[dialect]
    if dialect == "sqlite":
        with closing(sqlite3.connect(tmp_path / "rota.db")) as old:
            old.executescript(dump)
        opened: Store = await open_sqlite(tmp_path / "rota.db", clock=clock)
        yield FormerStore(opened, clock, secrets)
        await opened.close()
        return
    server = postgres_servers[postgres_version]
    await server.execute("DROP DATABASE IF EXISTS former")
    await server.execute("CREATE DATABASE former")
    connection = await asyncpg.connect(server.address("former"))
    await connection.execute(dump)
    await connection.execute(PASS)
    await connection.close()
    opened = await open_postgres(server.address("former"), clock=clock)
    yield FormerStore(opened, clock, secrets)
    await opened.close()
    await server.drop("former")


async def test_tokens_keep_their_role_in_all_projects(former: FormerStore) -> None:
    for role in Role:
        caller = await former.caller(role)
        assert caller.rights.installation_role is role
        assert [caller.rights.role_in(project) for project in PROJECTS] == [role] * 3

    second = await former.caller("second admin of viewer")  # each token of a name its own
    assert (second.name, second.rights.installation_role) == ("viewer", Role.ADMIN)
    with pytest.raises(Denied):
        await former.caller("revoked")


async def test_tokens_that_have_ended_give_nobody_a_role(former: FormerStore) -> None:
    bindings = {each.principal.handle: each.role for each in await former.store.bindings()}

    assert bindings["eyes"] is Role.VIEWER


async def test_whoever_is_disabled_is_unknown_by_old_tokens_too(former: FormerStore) -> None:
    await disable(former.store, "editor")

    for name, is_cookie in (("editor", False), ("session", True)):
        with pytest.raises(Denied):
            await former.caller(name, is_cookie=is_cookie)
    assert (await former.caller("operator")).kind == "service"


async def test_sessions_links_and_workers_go_on(former: FormerStore) -> None:
    session = await former.caller("session", is_cookie=True)
    worker = await authenticate_worker(former.engine, former.secrets["worker"])
    _, guest = await log_in(former.engine, former.secrets["login link"])

    assert (session.name, session.rights.installation_role) == ("editor", Role.EDITOR)
    assert (worker.name, worker.pool) == ("node", None)
    assert guest.rights.installation_role is Role.ADMIN


async def test_workers_of_the_past_can_be_disabled(former: FormerStore) -> None:
    worker = await authenticate_worker(former.engine, former.secrets["worker"])
    session = await former.store.register(
        Hello(worker="node", pool="default", slots=1), HOUR, credential=worker.credential
    )

    await disable(former.store, "node")

    assert not (await former.store.renew(session.id, stopping=False)).alive
    with pytest.raises(Denied):
        await authenticate_worker(former.engine, former.secrets["worker"])


async def test_projects_in_use_exist_with_all_that_was_in_them(former: FormerStore) -> None:
    store = former.store

    wanted = {*PROJECTS, *KNOWN_BY_ONE}
    assert await store.existing_projects([*wanted, "nope"]) == wanted
    for project in PROJECTS:
        jobs = await store.jobs(JobQuery(project=project))
        assert [job.name for job in jobs] == [
            *("far", "limited", "night-only", "nightly", "report", "tidy")
        ]
        runs = await store.runs(RunQuery(project=project))
        assert {(run.job, run.state) for run in runs} == WORK
        waiting = RunQuery(project=project, states=[RunState.QUEUED])
        assert len(await store.runs(waiting)) == 2
        assert [cart.name for cart in await store.carts(CartQuery(project))] == ["rollout"]
        assert [each.calendar.name for each in await store.calendars(project)] == ["nights"]
        assert await store.deleted_job(project, "dropped") is not None


async def test_work_goes_on_where_it_was(former: FormerStore) -> None:
    store = former.store
    [held] = [each.id for each in await store.sessions(alive_only=True)]
    going = RunQuery(project="etl", states=[RunState.PROCESSING])
    [run] = await store.runs(going)
    scene = former.scene("etl")

    await scene.finish(held, [Fence(run.id, run.attempt)])
    waiting = {
        run.id
        for project in PROJECTS
        for run in await store.runs(RunQuery(project=project, states=[RunState.QUEUED]))
        if run.job == "tidy"
    }
    works = await scene.claim(await scene.worker("new"), 100)
    [nightly] = await store.jobs(JobQuery(project="etl", names=["nightly"]))
    fired = await scene.scheduled_run(nightly.id, every=HOUR)

    assert await scene.state(run.id) is RunState.COMPLETED
    assert {work.run for work in works} == waiting
    assert (fired.project, fired.due_at) == ("etl", NOON + HOUR)


async def test_events_from_before_are_for_those_with_a_role_in_the_installation(
    former: FormerStore,
) -> None:
    store, scene = former.store, former.scene("etl")
    [tidy] = [job for job in await store.jobs(JobQuery(project="etl")) if job.name == "tidy"]
    position = await store.last_event()

    await scene.trigger(tidy.id)

    before = [event for event in await store.events(0, 1_000) if event.seq <= position]
    of_runs = {event.project for event in before if event.kind.startswith("run.")}
    told = await store.events(0, 1_000, projects=["etl"])
    assert of_runs == {""}
    assert {event.project for event in told} == {"etl"}
    assert [event.kind for event in told if event.kind.startswith("run.")] == ["run.queued"]


async def test_what_to_tighten_is_named(former: FormerStore) -> None:
    told = [each.message for each in await advice(former.engine)]

    tokens = [re.findall(r"\((.+)\) was made before .* it is (\w+) in every", it) for it in told]
    assert sorted(match for found in tokens for match in found) == [
        *(("admin", "admin"), ("editor", "editor"), ("eyes", "viewer"), ("operator", "operator")),
        *(("viewer", "admin"), ("viewer", "viewer")),
    ]
    assert any("default is shared by all projects" in message for message in told)


async def test_plain_processes_stay_where_projects_share_pools(former: FormerStore) -> None:
    """Although the server of a new cluster would keep them out."""
    told = await former.store.settle_walls(NEW_CLUSTER)

    [session] = await former.store.sessions(alive_only=True)
    pools = {pool.name: pool for pool in await former.store.pools()}

    assert told == WallDefaults()
    assert (pools[session.pool].is_shared, pools[session.pool].refuses_processes) == (True, False)


async def test_names_of_the_past_are_taken_and_may_get_another_token(former: FormerStore) -> None:
    fresh = NewToken(
        *("t_new", "editor", Role.VIEWER, "digest new", "api", "admin", None),
        principal="editor",
        project="etl",
        given_by=everywhere(Role.ADMIN),
    )

    await former.store.add_token(fresh)
    found = await former.store.token_by_digest("digest new")

    assert found is not None
    assert found.rights.projects() == ("etl",)
    assert found.rights.role_in("etl") is Role.VIEWER
    assert found.rights.role_at(INSTALLATION) is None
    narrow = replace(
        fresh, id="t_narrow", digest="digest narrow", principal="nobody", name="nobody"
    )
    await former.store.add_token(narrow)
    assert await former.store.token_by_digest("digest narrow") is not None
