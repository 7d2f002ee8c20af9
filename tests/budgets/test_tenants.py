"""What a member of one project costs the store, in an installation with a thousand others.

Lists, events and streams of a project read the same statements and the same rows as where there is
no other project.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import cast
from weakref import WeakKeyDictionary

import asyncpg
import pytest

from rota.domain.access import Role, everywhere
from rota.domain.carts.definition import CartRules
from rota.domain.ids import micros
from rota.domain.states import RunState
from rota.operations.engine import Engine, ForecastCaches, KeptForecast
from rota.operations.forecasts import Question, look_ahead
from rota.operations.tenants import Sight
from rota.ports.blobs import Blobs
from rota.ports.carts import CartQuery
from rota.ports.records import JobQuery, NewToken, RunQuery
from rota.ports.store import Store
from rota.queue.local import LocalQueue
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import START, FakeTicker
from testkit.identity import bind, make_principal, tell_groups
from testkit.new_stores import open_new_sqlite
from testkit.servers.postgres import PostgresServer
from tests.budgets.counting import VM_STEPS, Counts, counted_postgres, counted_sqlite, rows_read
from tests.budgets.test_budgets import postgres_server as postgres_server

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]

PROJECT, DEFAULT = "mine", "default"
OWN = "own"  # has a pool that was given to it alone
ISSUER = "https://login"
OTHERS, EACH = 1_000, 100  # projects, and jobs and runs of each
MANY = 20_000  # jobs of others in the same project
_FIRST = 1_000  # numbers of others: below are those of jobs that are looked for
AMONG = f"'p' || (n % {OTHERS})"  # which of them has the job of a number
ACTIVE = [RunState.SCHEDULED, RunState.BLOCKED, RunState.QUEUED, RunState.PROCESSING]
ENDED = [RunState.COMPLETED, RunState.FAILED]

# A job, a run and an event of each number; every tenth run waits. What is between is of others.
ROWS = """
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at,
    enabled)
SELECT 'j_' || n, {project}, 'job-' || n, 1, n % 256, 'file', 'user', n, n, 1
FROM {numbers};
INSERT INTO job_version (job_id, version, document, digest, rules, created_by, created_at)
SELECT 'j_' || n, 1, '{{}}', '', '{rules}', 'user', 1 FROM {numbers};
INSERT INTO schedule (job_id, shard, next_at, anchor, version)
SELECT 'j_' || n, n % 256, 9000000000000000, 0, 1 FROM {numbers};
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, due_at, release_at,
    priority, pool, chain, shape, delivery, max_attempts, expected, created_by, created_at,
    ended_at)
SELECT 'r_' || n, {project}, 'j_' || n, 'job-' || n, 1, 'manual',
    CASE WHEN n % 10 = 0 THEN 'QUEUED' ELSE 'COMPLETED' END, n, n, 5, 'default', 'default/5/x', '',
    'at_least_once', 1, 1.0, 'user', n, CASE WHEN n % 10 <> 0 THEN n END
FROM {numbers};
INSERT INTO cart (id, project, name, shard, document, rules, state, items, created_by, created_at,
    ended_at)
SELECT 'c_' || n, {project}, 'cart-' || n, 1, '{{}}', '{cart_rules}', 'COMPLETED', 1, 'user',
    n, n FROM {numbers};
INSERT INTO prediction (run_id, made_at, start_at)
SELECT 'r_' || n, {now}, {now} FROM {numbers} WHERE n % 50 = 0;
INSERT INTO project (name, title, defaults, policy, version, created_by, created_at, updated_by,
    updated_at)
SELECT DISTINCT {project}, '', '{{}}', '{{}}', 1, 'admin', 1, 'admin', 1 FROM {numbers}
WHERE {project} <> 'mine' ON CONFLICT DO NOTHING;
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
SELECT 'service-' || n, 'service', '', '', '', '', 'admin', n FROM {numbers};
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
SELECT 'group-' || n, 'group', 'https://login', 'group ' || n, '', '', 'admin', n FROM {numbers};
INSERT INTO binding (principal, scope, role, created_by, created_at)
SELECT kind || n, {project}, 'editor', 'admin', n FROM {numbers}
CROSS JOIN (SELECT 'service-' AS kind UNION ALL SELECT 'group-') AS kinds;
INSERT INTO token (id, name, role, digest, kind, created_by, created_at, principal, project)
SELECT 't_' || n, 'service-' || n, 'editor', 'digest ' || n, 'api', 'admin', n, 'service-' || n,
    {project} FROM {numbers};
INSERT INTO token (id, name, role, digest, kind, created_by, created_at, principal)
SELECT 's_' || n, 'service-' || n, 'admin', 'session ' || n, 'session', 'admin', n, 'service-' || n
FROM {numbers} WHERE n % 10 = 0;
INSERT INTO login_session (token, issuer, subject, sid, groups, refreshed_at, idle_until)
SELECT 's_' || n, 'https://login', 'user ' || n, 'sid ' || n, '["group ' || n || '"]', n,
    9000000000000000 FROM {numbers} WHERE n % 10 = 0;
INSERT INTO chain (id, pool, priority, share, tag, active)
SELECT 'far/5/p' || n, 'far', 5, 'p' || n, 0, 1 FROM {numbers};
"""
SQLITE_NUMBERS = """(WITH RECURSIVE number (n) AS (
    SELECT {first} UNION ALL SELECT n + 1 FROM number WHERE n < {last}) SELECT n FROM number)"""
POSTGRES_NUMBERS = "generate_series({first}, {last}) AS n"
SQLITE_EVENTS = """
INSERT INTO event (kind, at, actor, project, ids, data)
SELECT 'run.finished', n, 'w_1', {project}, '["r_' || n || '"]', '{{}}'
FROM {numbers};
"""
POSTGRES_EVENTS = """
INSERT INTO event (seq, tick, kind, at, actor, project, ids, data)
SELECT (1 << 16) + nextval('event_number'), 1, 'run.finished', n, 'w_1', {project},
    '["r_' || n || '"]', '{{}}' FROM {numbers};
"""


async def _names(store: Store, project: str) -> object:
    """What the things are called that events are about."""
    events = await store.events(0, 10, projects=(project,))
    return await store.names([each for event in events for each in event.ids], projects=(project,))


async def _quiet(store: Store, project: str) -> object:
    """A look for what is new, where nothing of the project is."""
    events = await store.events(0, 10_000, projects=(project,))
    return await store.events(events[-1].seq, 500, projects=(project,))


Ask = Callable[[Store], Awaitable[object]]
Found = Mapping[str, tuple[int, int]]  # statements, and steps or rows read, by look


def looks(project: str) -> Mapping[str, Ask]:
    """What members of a project look at."""
    queued = RunQuery(project=project, states=[RunState.QUEUED], served={"default"})
    return {
        "jobs": lambda store: store.jobs(JobQuery(project=project)),
        "my jobs": lambda store: store.jobs(JobQuery(project=project, created_by="editor")),
        "runs": lambda store: store.runs(RunQuery(project=project)),
        "my runs": lambda store: store.runs(RunQuery(project=project, created_by="user")),
        "waiting runs": lambda store: store.runs(RunQuery(project=project, states=ACTIVE)),
        "queued runs": lambda store: store.runs(queued),
        "ended runs": lambda store: store.runs(RunQuery(project=project, states=ENDED)),
        "carts": lambda store: store.carts(CartQuery(project=project)),
        "my carts": lambda store: store.carts(CartQuery(project=project, created_by="editor")),
        "events": lambda store: store.events(0, 100, projects=(project,)),
        "a tail": lambda store: store.position_before_latest(20, projects=(project,)),
        "a stream that begins": lambda store: store.last_event(),
        "a quiet stream": lambda store: _quiet(store, project),
        "names": lambda store: _names(store, project),
    }


async def forecast_of_members(store: Store) -> object:
    """A forecast that nobody has asked for before, for members of a project with its own pool."""
    engine = Engine(store, LocalQueue(), cast("Blobs", None))
    sight = Sight(frozenset({OWN}))
    return await look_ahead(engine, Question(OWN, length=timedelta(hours=1), sight=sight))


MINE = ("my jobs", "my carts")
LOOKS: dict[str, Ask] = {
    f"{name} of {project}": ask
    for project in (PROJECT, DEFAULT)
    for name, ask in looks(project).items()
}
# What every call looks up before anything else, unless it did so a moment ago: who calls, with the
# roles of their groups, and for callers with a role in all projects whether this one exists.
LOOKS |= {
    "a token": lambda store: store.token_by_digest("digest mine"),
    "a session with groups": lambda store: store.token_by_digest("session mine"),
    "a project": lambda store: store.existing_projects([PROJECT]),
    f"a forecast for members of {OWN}": forecast_of_members,
}


def engine_of(store: Store) -> Engine:
    """One for each store, with a forecast that took a second by its clock, and so is kept."""
    if store not in _ENGINES:
        ahead = ForecastCaches(KeptForecast(count(0.0, 0.01).__next__))
        _ENGINES[store] = Engine(store, LocalQueue(), cast("Blobs", None), ahead=ahead)
    return _ENGINES[store]


_ENGINES: WeakKeyDictionary[Store, Engine] = WeakKeyDictionary()
KEPT: Mapping[str, Ask] = {
    "a forecast that is kept": lambda store: look_ahead(
        engine_of(store), Question(PROJECT, length=timedelta(hours=1), job="job-1")
    )
}
# An index of the runs of `default` makes each drain of a backlog 6 % dearer on PostgreSQL, where a
# change of a run enters it in all of its indexes: there they are found by age, among all runs.
BY_AGE = {
    f"{name} of {DEFAULT}"
    for name in ("runs", "my runs", "ended runs", "waiting runs", "queued runs")
}


def rows(numbers: str, events: str, first: int, last: int, project: str) -> str:
    """Statements that add what other projects have, one of everything for each number."""
    among = numbers.format(first=first, last=last)
    of_carts = json.dumps(CartRules().to_document())
    of_jobs = json.dumps({"name": "job", "project": "others"})
    return (ROWS + events).format(
        project=project, numbers=among, rules=of_jobs, cart_rules=of_carts, now=micros(START)
    )


async def fill_both(store: Store, clock: FakeTicker) -> None:
    scene = Scene(store, clock)
    for each in (await scene.in_project(PROJECT), scene):
        await fill(each)
    own = await scene.in_project(OWN)
    await store.give_pool(OWN, [OWN], actor="admin")
    due = clock.instant + timedelta(minutes=5)
    for number in range(10):
        await own.trigger(await own.job(f"job-{number}", pool=OWN, next_at=due), 3)
    worker = await own.worker("worker-own", slots=10, pool=OWN)
    await own.finish(worker, (await own.claim(worker))[:5])
    await let_in(store)


async def let_in(store: Store) -> None:
    """A program with a role in a project, and somebody with one by their group."""
    for_one = NewToken(
        *("t_mine", "program", Role.EDITOR, "digest mine", "api", "admin", None),
        principal="program",
        project=PROJECT,
        given_by=everywhere(Role.ADMIN),
    )
    await store.add_token(for_one)
    await make_principal(store, "ann", "user", issuer=ISSUER, subject="ann")
    await make_principal(store, "group-dev", "group", issuer=ISSUER, subject="dev")
    await bind(store, "group-dev", Role.VIEWER, PROJECT)
    await bind(store, "ann", Role.VIEWER, DEFAULT)
    session = replace(for_one, id="s_mine", digest="session mine", kind="session", given_by=None)
    await store.add_token(replace(session, name="ann", principal="ann", project=None))
    await tell_groups(store, "s_mine", ISSUER, ["dev"])


async def fill(scene: Scene) -> None:
    """What one project has."""
    job_ids = [await scene.job(f"job-{number}") for number in range(10)]
    for job_id in job_ids:
        await scene.trigger(job_id, 3)
    worker = await scene.worker(f"worker-{scene.home}", slots=15)
    works = await scene.claim(worker)
    await scene.finish(worker, works[:10])
    await scene.trigger(await scene.job("away", pool="far"))
    await scene.trigger(job_ids[0], at=scene.clock.instant + timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class Crowd:
    """Jobs, runs, carts and events of others, half of them before, half after those looked for."""

    size: int = 0
    project: str = AMONG  # SQL, by the number `n`

    @property
    def halves(self) -> tuple[tuple[int, int], tuple[int, int]]:
        first, middle, end = _FIRST, _FIRST + self.size // 2, _FIRST + self.size
        return (first, middle - 1), (middle, end - 1)


async def cost_on_sqlite(
    crowd: Crowd, path: Path, patch: pytest.MonkeyPatch
) -> dict[str, tuple[int, int]]:
    """Statements and steps of each look, beside others."""
    counts, clock = Counts(), FakeTicker()
    before, after = crowd.halves
    with counted_sqlite(counts, patch):  # also those that are opened when they are needed
        store = await open_new_sqlite(path, clock=clock)
        try:
            add_to_sqlite(path, *before, crowd.project)
            await fill_both(store, clock)
            add_to_sqlite(path, *after, crowd.project)
            among = {**LOOKS, **KEPT}
            return {name: await cost(look, store, counts) for name, look in among.items()}
        finally:
            await store.close()


def add_to_sqlite(path: Path, first: int, last: int, project: str) -> None:
    if last < first:
        return
    with sqlite3.connect(path) as connection:
        connection.executescript(rows(SQLITE_NUMBERS, SQLITE_EVENTS, first, last, project))
    connection.close()


async def cost(look: Ask, store: Store, counts: Counts) -> tuple[int, int]:
    """The least of some calls: now and then a store has something to do beside them."""
    found = []
    for _ in range(5):
        counts.statements = counts.steps = 0
        with counts.counting():
            assert await look(store) is not None
        found.append((counts.statements, counts.steps))
    assert min(found) > (0, 0)
    return min(found)


async def test_a_member_reads_no_more_of_sqlite_beside_a_thousand_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = await cost_on_sqlite(Crowd(), tmp_path / "alone.db", monkeypatch)
    crowd = await cost_on_sqlite(Crowd(OTHERS * EACH), tmp_path / "crowd.db", monkeypatch)

    check_steps(alone, crowd, [*LOOKS, *KEPT])


async def test_what_is_mine_is_found_in_sqlite_beside_what_others_made_in_the_same_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = await cost_on_sqlite(Crowd(), tmp_path / "alone.db", monkeypatch)
    crowd = await cost_on_sqlite(Crowd(MANY, f"'{PROJECT}'"), tmp_path / "crowd.db", monkeypatch)

    check_steps(alone, crowd, [f"{name} of {PROJECT}" for name in MINE])


def check_steps(alone: Found, crowd: Found, names: Iterable[str]) -> None:
    sys.stdout.write(f"alone {alone}\ncrowd {crowd}\n")
    for name in names:
        statements, steps = crowd[name]
        assert statements == alone[name][0], name
        # A forecast has many statements, each of which may find its place a step deeper.
        most = alone[name][1] + max(2 * VM_STEPS, alone[name][1] // 50)
        assert steps <= most, (name, steps, alone[name][1])


async def test_a_member_reads_no_more_of_postgres_beside_a_thousand_projects(
    postgres_server: PostgresServer,
) -> None:
    alone = await cost_on_postgres(Crowd(), postgres_server)
    crowd = await cost_on_postgres(Crowd(OTHERS * EACH), postgres_server)

    check_rows(alone, crowd, LOOKS.keys() - BY_AGE)


async def test_what_is_mine_is_found_in_postgres_beside_what_others_made_in_the_same_project(
    postgres_server: PostgresServer,
) -> None:
    alone = await cost_on_postgres(Crowd(), postgres_server)
    crowd = await cost_on_postgres(Crowd(MANY, f"'{PROJECT}'"), postgres_server)

    check_rows(alone, crowd, [f"{name} of {PROJECT}" for name in MINE])


def check_rows(alone: Found, crowd: Found, names: Iterable[str]) -> None:
    sys.stdout.write(f"alone {alone}\ncrowd {crowd}\n")
    for name in names:
        statements, read = crowd[name]
        assert statements == alone[name][0], name
        # Beside many it goes by an index, whose entries count as rows; alone it reads the table.
        assert read <= 2 * alone[name][1] + 10, (name, read, alone[name][1])


async def cost_on_postgres(crowd: Crowd, server: PostgresServer) -> dict[str, tuple[int, int]]:
    """Statements and rows read of each look; rows are told when a store is closed."""
    clock, (before, after) = FakeTicker(), crowd.halves
    database = await server.create()
    store = await open_postgres(server.address(database), clock=clock)
    try:
        await add_to_postgres(server, database, *before, crowd.project)
        await fill_both(store, clock)
        await add_to_postgres(server, database, *after, crowd.project)
    finally:
        await store.close()
    found = {
        name: (
            await look_at_postgres(look, server, database),
            await read_by(look, server, database),
        )
        for name, look in LOOKS.items()
    }
    await server.drop(database)
    return found


async def add_to_postgres(
    server: PostgresServer, database: str, first: int, last: int, project: str
) -> None:
    connection = await asyncpg.connect(server.address(database))
    try:
        if last >= first:
            await connection.execute(rows(POSTGRES_NUMBERS, POSTGRES_EVENTS, first, last, project))
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def look_at_postgres(look: Ask, server: PostgresServer, database: str) -> int:
    counts = Counts()
    with counted_postgres(counts, server.port) as port:
        store = await open_postgres(server.address(database, port), clock=FakeTicker())
        try:
            await look(store)
            with counts.counting():
                await look(store)
        finally:
            await store.close()
    return counts.statements


async def read_by(look: Ask, server: PostgresServer, database: str) -> int:
    """Rows that a look reads, less those that opening a store does."""
    told = [await rows_read(server, database)]
    for looks in (0, 1):
        store = await open_postgres(server.address(database), clock=FakeTicker())
        try:
            for _ in range(looks):
                await look(store)
        finally:
            await store.close()
        told.append(await rows_read(server, database))
    opening, both = told[1] - told[0], told[2] - told[1]
    return both - opening
