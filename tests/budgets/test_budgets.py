"""Costs of a run in the store, counted: these tests know no time, so they cannot flake.

Where a figure is beyond its budget, the failure prints the new row of the table. Put it there if
the change is worth it, and say why in the commit. Figures that fell do not fail: `-rP` shows all
rows as they are now, so that a gain can be kept.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from rota.domain.ids import JobId
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.new_stores import open_new_sqlite
from testkit.servers.postgres import PostgresServer, server_folder
from tests.budgets.counting import Counts, counted_postgres, counted_sqlite, rows_read
from tests.budgets.verbs import BATCH, VERBS, Verb

pytestmark = pytest.mark.anyio

FEW, MANY = "few", "many"  # runs that wait meanwhile: how many, a verb tells
AIR = 1.03  # what a figure may exceed its budget by
FLAT = 1.05  # what a figure may grow by from few to many
PYTHON: tuple[int, ...] = tuple(sys.version_info[:2])
POSTGRES = 18  # 15 and 16 read as many rows, within 2 %
SQLITE = (3, 40)  # for which steps are budgeted; others compile statements to other steps
OTHER_SQLITE_AIR = 1.3
# Ways into the queue, and how many runs of one job wait there, few and many.
RELEASES, CROWDS = ("due", "retry", "fit", "slot", "due_slot"), (20_000, 200_000)
CROWDED = 1.25  # how many dead index entries PostgreSQL meets depends on its plan
_COPY = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})
INSERT INTO run (id, {columns}) SELECT 'r_900000000000000' || (100000000 + n), {columns}
FROM run CROSS JOIN number
WHERE seq = (SELECT max(seq) FROM run WHERE state IN ('SCHEDULED', 'BLOCKED')) ORDER BY n
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one call for a batch of 100 runs."""

    statements: int  # SQLite executes one for each row, where PostgreSQL takes a batch
    round_trips: int  # to PostgreSQL
    read: int  # SQLite: steps of its virtual machine; PostgreSQL: rows and index entries
    # Of Python functions, by 3.11: for later ones see `LATER_CALLS`. On SQLite a handful more or
    # less, as the writer's thread goes to sleep and wakes up.
    calls: int


BUDGETS: Mapping[str, Mapping[str, Mapping[str, Cost]]] = {
    # statements, round trips, read, calls
    # On SQLite each writing of a run names all of its columns: one more costs a few steps.
    "sqlite": {
        "submit": {FEW: Cost(110, 0, 20_780, 2_606), MANY: Cost(110, 0, 20_780, 2_606)},
        "release": {FEW: Cost(10, 0, 18_220, 376), MANY: Cost(10, 0, 18_220, 376)},
        "due": {FEW: Cost(10, 0, 18_180, 376), MANY: Cost(10, 0, 18_180, 376)},
        "retry": {FEW: Cost(10, 0, 18_170, 380), MANY: Cost(10, 0, 18_170, 380)},
        "fit": {FEW: Cost(13, 0, 19_270, 447), MANY: Cost(13, 0, 19_270, 447)},
        "slot": {FEW: Cost(20, 0, 68_910, 7_070), MANY: Cost(20, 0, 68_910, 7_070)},
        "due_slot": {FEW: Cost(20, 0, 72_090, 6_767), MANY: Cost(20, 0, 72_090, 6_767)},
        "fire": {FEW: Cost(211, 0, 38_900, 5_606), MANY: Cost(211, 0, 38_900, 5_606)},
        "claim": {FEW: Cost(16, 0, 29_030, 256), MANY: Cost(16, 0, 29_030, 256)},
        "finish": {FEW: Cost(12, 0, 31_570, 174), MANY: Cost(12, 0, 31_570, 174)},
        "note": {FEW: Cost(5, 0, 13_260, 262), MANY: Cost(5, 0, 13_260, 262)},
    },
    # Nine of the statements (submit: six) are settings, in the round trip of BEGIN.
    "postgres": {
        "submit": {FEW: Cost(16, 10, 18, 2_651), MANY: Cost(16, 10, 18, 2_651)},
        "release": {FEW: Cost(18, 9, 808, 427), MANY: Cost(18, 9, 808, 427)},
        "due": {FEW: Cost(18, 9, 810, 427), MANY: Cost(18, 9, 810, 427)},
        "retry": {FEW: Cost(18, 9, 888, 431), MANY: Cost(18, 9, 888, 431)},
        "fit": {FEW: Cost(30, 15, 818, 559), MANY: Cost(30, 15, 818, 559)},
        "slot": {FEW: Cost(23, 14, 2_110, 7_153), MANY: Cost(23, 14, 2_110, 7_153)},
        "due_slot": {FEW: Cost(23, 14, 2_068, 6_851), MANY: Cost(23, 14, 2_068, 6_851)},
        "fire": {FEW: Cost(20, 11, 1_334, 6_566), MANY: Cost(20, 11, 1_334, 6_566)},
        "claim": {FEW: Cost(23, 14, 1_522, 378), MANY: Cost(23, 14, 1_522, 378)},
        "finish": {FEW: Cost(15, 6, 496, 215), MANY: Cost(15, 6, 518, 215)},
        "note": {FEW: Cost(12, 3, 598, 294), MANY: Cost(12, 3, 598, 294)},
    },
}

# Python calls on 3.13, which inlines comprehensions as 3.12 does: upper bounds on other versions.
LATER_CALLS: Mapping[str, Mapping[str, int]] = {
    # On SQLite each writing of a run names all of its columns: one more costs a few steps.
    "sqlite": {
        "submit": 2_562,
        "release": 347,
        "due": 347,
        "retry": 347,
        "fit": 406,
        "slot": 7_007,
        "due_slot": 6_701,
        "fire": 5_354,
        "claim": 222,
        "finish": 151,
        "note": 262,
    },
    "postgres": {
        "submit": 2_612,
        "release": 399,
        "due": 399,
        "retry": 399,
        "fit": 515,
        "slot": 7_090,
        "due_slot": 6_788,
        "fire": 6_420,
        "claim": 341,
        "finish": 195,
        "note": 294,
    },
}

Found = Mapping[str, Cost]  # by whether few or many runs wait


@pytest.mark.parametrize("verb", VERBS)
async def test_a_run_costs_sqlite_no_more_than_its_budget(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        name: await cost_on_sqlite(VERBS[verb], backlog, tmp_path / name, monkeypatch)
        for name, backlog in backlogs(verb).items()
    }

    check("sqlite", verb, found)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_run_costs_postgres_no_more_than_its_budget(
    verb: str, postgres_server: PostgresServer
) -> None:
    found = {
        name: await cost_on_postgres(VERBS[verb], backlog, postgres_server)
        for name, backlog in backlogs(verb).items()
    }

    check("postgres", verb, found)


@pytest.mark.slow
@pytest.mark.parametrize("verb", RELEASES)
async def test_a_release_costs_sqlite_the_same_before_a_crowd(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = [
        await cost_on_sqlite(VERBS[verb], crowd, tmp_path / str(crowd), monkeypatch)
        for crowd in CROWDS
    ]

    assert growth("sqlite", verb, {FEW: few, MANY: many}, CROWDS, CROWDED) == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", RELEASES)
async def test_a_release_costs_postgres_the_same_before_a_crowd(
    verb: str, postgres_server: PostgresServer
) -> None:
    few, many = [
        await cost_on_postgres(VERBS[verb], crowd, postgres_server, has_statistics=True)
        for crowd in CROWDS
    ]

    assert growth("postgres", verb, {FEW: few, MANY: many}, CROWDS, CROWDED) == []


@pytest.mark.parametrize("limit", [None, 100_000])
async def test_the_end_of_a_pause_costs_sqlite_the_same_for_each_run_that_it_held(
    limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = [
        await cost_of_resuming_on_sqlite(held, limit, tmp_path / str(held), monkeypatch)
        for held in (1_000, 10_000)
    ]

    assert not grown_tenfold(few, many)


@pytest.mark.parametrize("limit", [None, 100_000])
async def test_the_end_of_a_pause_costs_postgres_the_same_for_each_run_that_it_held(
    limit: int | None, postgres_server: PostgresServer
) -> None:
    few, many = [
        await cost_of_resuming_on_postgres(held, limit, postgres_server) for held in (1_000, 10_000)
    ]

    assert not grown_tenfold(few, many)


def grown_tenfold(few: Cost, many: Cost) -> list[str]:
    """Tell what grows by more than the number of runs, which is tenfold; statements at all."""
    told = [
        f"{figure} {before:,} → {after:,}"
        for figure, before in asdict(few).items()
        if (after := asdict(many)[figure]) > before * 10 * FLAT
    ]
    if many.statements > few.statements + 10:  # each page is longer than the one before
        told.append(f"statements {few.statements:,} → {many.statements:,}")
    return told


@pytest.mark.parametrize("figure", ["statements", "round_trips", "read", "calls"])
def test_any_figure_beyond_its_budget_is_told_with_the_new_row(figure: str) -> None:
    found = costs(**{figure: 110})

    [problem] = problems("sqlite", "claim", found, {FEW: Cost(*[100] * 4), MANY: Cost(*[110] * 4)})

    assert problem == f"sqlite claim, 100 waiting: {figure} 110, 100 budgeted"
    assert row("claim", found).startswith('"claim": {FEW: Cost(')


def test_what_stays_within_its_budget_and_the_air_above_is_no_problem() -> None:
    budget = {FEW: Cost(*[100] * 4), MANY: Cost(*[100] * 4)}

    assert problems("sqlite", "claim", costs(calls=103), budget) == []
    assert problems("sqlite", "claim", costs(calls=50), budget) == []


def test_growth_with_the_backlog_is_told_though_both_budgets_allow_it() -> None:
    found = {FEW: Cost(*[100] * 4), MANY: Cost(100, 100, 106, 100)}

    [problem] = problems("sqlite", "claim", found, {FEW: Cost(*[200] * 4), MANY: Cost(*[200] * 4)})

    assert problem == (
        "sqlite claim: read grows 1.06 × from 100 to 5,000 waiting runs, 1.05 × allowed"
    )


def check(store: str, verb: str, found: Found) -> None:
    """Fail with every problem, and with what the table would have to say."""
    rows = f"The row as it is now:\n    {row(verb, found)}"
    sys.stdout.write(f"{store}\n    {row(verb, found)}\n")
    if told := problems(store, verb, found, budgets_of(store, verb)):
        pytest.fail("\n".join([*told, rows]), pytrace=False)


def budgets_of(store: str, verb: str) -> Found:
    budgets = BUDGETS[store][verb]
    if PYTHON < (3, 12):
        return budgets
    return {n: replace(each, calls=LATER_CALLS[store][verb]) for n, each in budgets.items()}


def backlogs(verb: str) -> Mapping[str, int]:
    return dict(zip((FEW, MANY), VERBS[verb].backlogs, strict=True))


def problems(store: str, verb: str, found: Found, budgets: Found) -> list[str]:
    waiting = backlogs(verb)
    told = [
        f"{store} {verb}, {waiting[backlog]:,} waiting: {figure} {value:,}, {budget:,} budgeted"
        for backlog, cost in found.items()
        for figure, value in asdict(cost).items()
        if value > (budget := asdict(budgets[backlog])[figure]) * air(store, figure)
    ]
    return told + growth(store, verb, found, VERBS[verb].backlogs)


def growth(
    store: str, verb: str, found: Found, waiting: tuple[int, int], allowed: float = FLAT
) -> list[str]:
    """Tell what costs more before many waiting runs than before few."""
    few, many = asdict(found[FEW]), asdict(found[MANY])
    return [
        f"{store} {verb}: {figure} grows {value / max(few[figure], 1):.2f} × from"
        f" {waiting[0]:,} to {waiting[1]:,} waiting runs, {allowed:.2f} × allowed"
        for figure, value in many.items()
        if value > few[figure] * allowed
    ]


def air(store: str, figure: str) -> float:
    is_other = sqlite3.sqlite_version_info[:2] != SQLITE
    return OTHER_SQLITE_AIR if (store, figure, is_other) == ("sqlite", "read", True) else AIR


def row(verb: str, found: Found) -> str:
    """As it stands in the table."""
    few, many = (
        ", ".join(f"{value:_}" for value in asdict(found[n]).values()) for n in (FEW, MANY)
    )
    return f'"{verb}": {{FEW: Cost({few}), MANY: Cost({many})}},'


def costs(**figures: int) -> Found:
    """100 of everything but these."""
    cost = Cost(**{"statements": 100, "round_trips": 100, "read": 100, "calls": 100} | figures)
    return {FEW: cost, MANY: cost}


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    version = request.config.getoption("postgres") or POSTGRES
    with server_folder() as folder, PostgresServer(folder / "postgres", version) as server:
        yield server


async def cost_on_sqlite(
    make: type[Verb], backlog: int, path: Path, patch: pytest.MonkeyPatch
) -> Cost:
    counts, clock, verb = Counts(), FakeTicker(), make(partial(multiply_on_sqlite, path))
    with counted_sqlite(counts, patch), counts.watched_threads():
        store = await open_new_sqlite(path, clock=clock)
    try:
        await verb.prepare(Scene(store, clock), backlog)
        for _ in range(2):
            assert await verb.call(store) == BATCH
        with counts.counting():
            assert await verb.call(store) == BATCH
        assert await verb.has_worked(store)
    finally:
        await store.close()
    return Cost(counts.statements, 0, counts.steps, counts.calls)


async def multiply_on_sqlite(path: Path, count: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        found = connection.execute("SELECT * FROM run LIMIT 0")
        connection.execute(copying([column[0] for column in found.description], count))


async def multiply_on_postgres(server: PostgresServer, database: str, count: int) -> None:
    [youngest] = await server.execute("SELECT * FROM run ORDER BY seq DESC LIMIT 1", database)
    await server.execute(copying(youngest.keys(), count), database)


def copying(names: Iterable[str], count: int) -> str:
    columns = ", ".join(name for name in names if name not in ("seq", "id"))
    return _COPY.format(columns=columns, count=count)


async def cost_of_resuming_on_sqlite(
    held: int, limit: int | None, path: Path, patch: pytest.MonkeyPatch
) -> Cost:
    counts, clock = Counts(), FakeTicker()
    with counted_sqlite(counts, patch), counts.watched_threads():
        store = await open_new_sqlite(path, clock=clock)
    try:
        scene = Scene(store, clock)
        job_id = await pause(scene, held, limit)
        with counts.counting():
            await scene.move("resumed", job_id)
        assert (await store.counts()).runs == {("QUEUED", "default"): held}
    finally:
        await store.close()
    return Cost(counts.statements, 0, counts.steps, counts.calls)


async def cost_of_resuming_on_postgres(
    held: int, limit: int | None, server: PostgresServer
) -> Cost:
    counts, clock = Counts(), FakeTicker()
    database = await server.create()
    store = await open_postgres(server.address(database), clock=clock)
    try:
        job_id = await pause(Scene(store, clock), held, limit)
    finally:
        await store.close()
    before = await rows_read(server, database)
    with counted_postgres(counts, server.port) as port:
        store = await open_postgres(server.address(database, port), clock=clock)
        try:
            with counts.counting():
                await Scene(store, clock).move("resumed", job_id)
        finally:
            await store.close()
    read = await rows_read(server, database) - before
    [queued] = await server.execute("SELECT count(*) FROM run WHERE state = 'QUEUED'", database)
    assert queued["count"] == held
    await server.drop(database)
    return Cost(counts.statements, counts.round_trips, read, counts.calls)


async def pause(scene: Scene, held: int, limit: int | None) -> JobId:
    """Have a job paused, with runs that it holds."""
    job_id = await scene.job(max_concurrency=limit)
    await scene.move("paused", job_id)
    await scene.trigger(job_id, held)
    return job_id


async def cost_on_postgres(
    make: type[Verb], backlog: int, server: PostgresServer, *, has_statistics: bool = False
) -> Cost:
    """Rows read are told when a store is closed: those of two calls, less those of one.

    A table that is new has no statistics; with those that it has sooner or later PostgreSQL finds
    other ways to the same rows.
    """
    counts, clock = Counts(), FakeTicker()
    database = await server.create()
    verb = make(partial(multiply_on_postgres, server, database))
    store = await open_postgres(server.address(database), clock=clock)
    try:
        await verb.prepare(Scene(store, clock), backlog)
    finally:
        await store.close()
    if has_statistics:
        await server.execute("VACUUM ANALYZE", database)
    read = [await rows_read(server, database)]
    for is_counted in (False, True):
        await call_on_postgres(verb, server, database, clock, counts if is_counted else None)
        read.append(await rows_read(server, database))
    store = await open_postgres(server.address(database), clock=clock)
    try:
        assert await verb.has_worked(store)
    finally:
        await store.close()
    await server.drop(database)
    once, twice = read[1] - read[0], read[2] - read[1]
    return Cost(counts.statements, counts.round_trips, twice - once, counts.calls)


async def call_on_postgres(
    verb: Verb, server: PostgresServer, database: str, clock: FakeTicker, counts: Counts | None
) -> None:
    """A new server calls, and with `counts` once more, which is counted."""
    with counted_postgres(counts or Counts(), server.port) as port:
        store = await open_postgres(server.address(database, port), clock=clock)
        try:
            assert await verb.call(store) == BATCH
            if counts is not None:
                with counts.counting():
                    assert await verb.call(store) == BATCH
        finally:
            await store.close()
