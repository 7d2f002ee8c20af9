"""The order of events on PostgreSQL, where transactions are numbered in another order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import asyncpg
import pytest

from rota.domain.ids import JobId, SessionId
from rota.domain.spec import Overlap
from rota.domain.states import TRANSITIONS, RunState, fold_events
from rota.ports.records import Event, RunQuery
from rota.ports.work import Work
from rota.store import claims, ends
from rota.store.postgres import driver, opening
from rota.store.postgres.opening import open_postgres
from rota.store.script import Script, Urgency, lock, query
from rota.store.store import SqlStore
from rota.store.tx import Tx
from testkit.builders import Scene, outcome, reported
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = pytest.mark.anyio

T = TypeVar("T")
STEPS = {(before, after) for (before, _), after in TRANSITIONS.items()}
RUNS, WORKERS, AT_ONCE = 240, 4, 12
_CLOSE = "SELECT pg_advisory_lock(7682002, hashtext($1))"
_OPEN = "SELECT pg_advisory_unlock(7682002, hashtext($1))"
_BEFORE = 5  # the last migration before positions respected the order of steps
_AS_BEFORE = """
INSERT INTO event (seq, kind, at, actor, project, ids, data)
SELECT pg_current_xact_id()::text::bigint << 16, $1, 0, 'user', '', '[]', '{}'
"""


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


class Doors:
    """Holds transactions back that have their number already."""

    def __init__(self, scene: Scene, store: SqlStore, rival: Rival, server: PostgresServer) -> None:
        self._scene = scene
        self._store = store
        self._rival = rival
        self._server = server
        self._closed: list[SessionId] = []

    async def begin(self, script: Callable[[Tx], Script[T]]) -> tuple[SessionId, asyncio.Task[T]]:
        """Begin a transaction; its script goes on when its door is opened."""
        door = await self._scene.worker(f"door-{len(self._closed)}", pool="doors")
        await self._rival.execute(_CLOSE, door)

        def held_back(tx: Tx) -> Script[T]:
            yield lock("sessions", ids=[door])  # the first row that it locks gives it its number
            yield query("claiming_session", id=door)  # and here it waits
            return (yield from script(tx))

        self._closed.append(door)
        task = asyncio.create_task(self._store.write(held_back, Urgency.CLAIM))
        await until_somebody_waits(self._server, many=len(self._closed))
        return door, task

    async def open(self, door: SessionId) -> None:
        await self._rival.execute(_OPEN, door)


@pytest.fixture
def doors(
    scene: Scene,
    store: SqlStore,
    rival: Rival,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Doors:
    monkeypatch.setitem(driver._LOCK_TIMEOUTS, Urgency.CLAIM, "60s")
    return Doors(scene, store, rival, postgres_server)


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events if event.kind.startswith("run.")]


async def test_steps_of_a_run_are_in_order_though_their_transactions_began_in_another(
    scene: Scene, store: SqlStore, doors: Doors
) -> None:
    job_id, worker = await scene.job(), await scene.worker()
    works: list[Work] = []

    def finish(tx: Tx) -> Script[object]:
        report = reported(*map(outcome, works))
        return ends.finish(tx, worker, report, claims.Wish(0, 1))

    last, finishing = await doors.begin(finish)
    second, claiming = await doors.begin(lambda tx: claims.claim(tx, worker, 1))
    [run] = await scene.trigger(job_id)
    await doors.open(second)
    works += (await claiming).batch.works()
    await scene.start(worker, works)
    await doors.open(last)
    await finishing

    of_run = await store.events(0, 100, ids=[run])

    assert kinds(of_run) == ["run.queued", "run.claimed", "run.started", "run.finished"]
    assert kinds(await store.events(0, 100)) == kinds(of_run)
    assert len({event.seq for event in of_run}) == len(of_run)
    assert await store.last_event() == of_run[-1].seq


async def test_a_follower_is_told_nothing_before_the_step_it_builds_on(
    scene: Scene, store: SqlStore, doors: Doors
) -> None:
    job_id, worker = await scene.job(), await scene.worker()
    door, claiming = await doors.begin(lambda tx: claims.claim(tx, worker, 1))
    await scene.trigger(job_id)
    position = await store.last_event()

    before = await store.events(position, 100)
    await doors.open(door)
    await claiming
    after = await store.events(position, 100)

    assert before == []
    assert kinds(after) == ["run.queued", "run.claimed"]


async def test_a_follower_of_a_busy_store_misses_nothing_and_hears_each_event_once(
    scene: Scene, store: SqlStore
) -> None:
    job_id = await scene.job(overlap=Overlap.ALLOW)
    workers = [await scene.worker(f"busy-{n}", slots=AT_ONCE) for n in range(WORKERS)]
    position = await store.last_event()
    heard: list[Event] = []

    async def follow() -> None:
        while not heard or not is_over(heard):
            heard.extend(await store.events(heard[-1].seq if heard else position, 10))

    following = asyncio.create_task(follow())
    async with asyncio.timeout(60), asyncio.TaskGroup() as busy:
        for _ in range(AT_ONCE):
            busy.create_task(submit(scene, job_id))
        for worker in workers:
            busy.create_task(serve(scene, worker))
    await asyncio.wait_for(following, 20)

    assert heard == await store.events(position, 100_000)
    paths = fold_events(heard)
    assert {step for path in paths.values() for step in pairwise(path)} <= STEPS
    runs = await store.runs(RunQuery(limit=RUNS))
    assert {run.id: run.state for run in runs} == {run: path[-1] for run, path in paths.items()}


async def test_a_position_of_an_older_store_goes_on_after_its_migration(
    postgres_server: PostgresServer,
    clock: FakeTicker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await postgres_server.execute("CREATE DATABASE older")
    older = await asyncpg.connect(postgres_server.address("older"))
    with monkeypatch.context() as patch:
        patch.setattr(opening, "_MIGRATIONS", migrations_up_to(_BEFORE, tmp_path))
        await opening.migrate(older)
    await older.execute(_AS_BEFORE, "run.queued")
    await older.execute(_AS_BEFORE, "run.claimed")
    [seen] = await older.fetch("SELECT min(seq) AS seq FROM event")

    store = await open_postgres(postgres_server.address("older"), clock=clock)
    await older.execute(_AS_BEFORE, "run.started")  # by a server that is not upgraded yet
    await Scene(store, clock).job()

    events = await store.events(seen["seq"], 10)
    assert [event.kind for event in events] == ["run.claimed", "run.started", "job.created"]
    await store.close()
    await older.close()
    await postgres_server.drop("older")


async def test_an_event_of_a_server_that_is_not_upgraded_waits_for_its_turn_too(
    store: SqlStore, scene: Scene, rival: Rival
) -> None:
    await rival.execute("BEGIN")
    await rival.execute(_AS_BEFORE, "run.queued")
    await scene.job()

    before = await store.events(0, 10)
    await rival.execute("COMMIT")
    after = await store.events(0, 10)

    assert before == []
    assert [event.kind for event in after] == ["run.queued", "job.created"]


def migrations_up_to(number: int, folder: Path) -> Path:
    """The first migrations, as a release had them."""
    for file in resources.files("rota.store.postgres").joinpath("migrations").iterdir():
        if int(file.name.split("_")[0]) <= number:
            (folder / file.name).write_text(file.read_text("utf-8"), "utf-8")
    return folder


def is_over(events: Sequence[Event]) -> bool:
    return sum(len(event.ids) for event in events if event.kind == "run.finished") == RUNS


async def submit(scene: Scene, job_id: JobId) -> None:
    for _ in range(RUNS // AT_ONCE):
        await scene.trigger(job_id)


async def serve(scene: Scene, worker: SessionId) -> None:
    """Claim, start and finish side by side until all runs have ended."""
    while len(await scene.store.runs(RunQuery(states=[RunState.COMPLETED], limit=RUNS))) < RUNS:
        works = await scene.claim(worker, 2)
        async with asyncio.TaskGroup() as reports:
            reports.create_task(scene.start(worker, works[:1]))
            reports.create_task(scene.finish(worker, works))
