"""What watching costs the store, and what wakes a look at a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.blobs.files import open_files
from rota.operations.engine import Engine
from rota.operations.runs import find_run
from rota.operations.watching import (
    RunChanged,
    RunSettled,
    StepChanged,
    TimePassed,
    Told,
    watch_run,
)
from rota.ports.queue import output as output_topic
from rota.ports.work import RUNNING, StepNote, StepOutcome
from rota.queue.local import LocalIdleWorkers
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.new_stores import local_queue, open_new_sqlite

pytestmark = pytest.mark.anyio


class Counted:
    """A store that counts what is asked of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.asked[name] += 1
            return await verb(*args, **kwargs)

        return call


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = FakeTicker()
    store = await open_new_sqlite(tmp_path / "rota.db", clock=clock)
    yield Scene(store, clock)
    await store.close()


@pytest.fixture
async def engine(scene: Scene, tmp_path: Path) -> AsyncIterator[Engine]:
    async with await open_files(tmp_path / "blobs") as blobs:
        yield Engine(scene.store, local_queue(scene.store), blobs, LocalIdleWorkers())


@pytest.fixture
def store(engine: Engine) -> Counted:
    return Counted(engine.store)


@pytest.fixture
def counted(engine: Engine, store: Counted) -> Engine:
    fields: dict[str, Any] = {"store": store}
    return replace(engine, **fields)


@asynccontextmanager
async def watched(engine: Engine, run: str) -> AsyncIterator[AsyncGenerator[Told, None]]:
    found = await find_run(engine, run)
    async with asyncio.timeout(20), aclosing(watch_run(engine, found)) as told:
        yield told


async def next_of(told: AsyncGenerator[Told, None], kind: type) -> Any:
    async for each in told:
        if isinstance(each.news, kind):
            return each.news
    raise AssertionError(f"it ended without {kind}")


async def begun(scene: Scene) -> tuple[Any, Any]:
    worker = await scene.worker()
    await scene.trigger(await scene.job())
    [work] = await scene.claim(worker)
    await scene.start(worker, [work])
    return worker, work


@pytest.mark.slow
async def test_a_run_at_which_nothing_happens_costs_no_look(
    scene: Scene, counted: Engine, store: Counted
) -> None:
    _, work = await begun(scene)
    async with watched(counted, work.run) as told:
        await next_of(told, TimePassed)
        store.asked.clear()
        for _ in range(2):  # seconds
            await next_of(told, TimePassed)

    assert store.asked == {}


async def test_a_look_costs_a_handful_of_reads_however_many_hints_woke_it(
    scene: Scene, counted: Engine, store: Counted
) -> None:
    worker, work = await begun(scene)
    step = StepOutcome("build", RUNNING, started_at=1)
    async with watched(counted, work.run) as told:
        await next_of(told, TimePassed)
        store.asked.clear()
        await scene.store.tell_notes(worker, [StepNote(work.run, work.number, 1, 0, (step,))])
        for _ in range(100):
            counted.queue.announce(output_topic(work.run))
        await next_of(told, StepChanged)

    assert store.asked == {"runs": 1, "notes": 1, "attempts": 1, "arrived_output": 1}


class Restless:
    """A queue that always has news, and is its own listener."""

    def listen(self, *topics: str) -> Restless:
        return self

    def announce(self, topic: str, payload: str = "") -> None:
        """Tell nobody."""

    async def wait(self, timeout: timedelta) -> frozenset[str]:
        return frozenset({""})

    def close(self) -> None:
        """Stay open."""


async def test_the_time_is_told_while_something_happens_all_the_time(
    scene: Scene, engine: Engine
) -> None:
    _, work = await begun(scene)
    fields: dict[str, Any] = {"queue": Restless()}
    async with watched(replace(engine, **fields), work.run) as told:
        first = await next_of(told, TimePassed)
        second = await next_of(told, TimePassed)

    assert first.at < second.at


async def test_all_of_a_finished_run_is_told_in_one_look(
    scene: Scene, counted: Engine, store: Counted
) -> None:
    worker, work = await begun(scene)
    await scene.finish(worker, [work])

    async with watched(counted, work.run) as told:
        store.asked.clear()
        await next_of(told, RunSettled)

    assert store.asked["runs"] == 1
    assert "notes" not in store.asked


async def test_a_lost_run_that_is_tried_again_is_not_over(scene: Scene, engine: Engine) -> None:
    worker, work = await begun(scene)
    await scene.store.lose(worker, [work.fence])

    async with watched(engine, work.run) as told:
        changed = await next_of(told, RunChanged)

    assert changed.run.state in ("SCHEDULED", "QUEUED", "BLOCKED")
