"""P5: one step of find and advance, with ever more schedules stored."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from bench.contest import Plan, is_taken_again, sample_of, watched
from bench.due_steps import BareSteps, RotaSteps, Steps, own_all_shards
from bench.due_steps_postgres import postgres_steps
from bench.figures import Comparison, Sample, at_most, at_most_times
from bench.postgres import postgres
from bench.rota_up import temporary_home
from bench.schedules import FAR_AWAY, fill, timetable
from rota.store.sqlite.opening import open_sqlite
from testkit.servers.postgres import PostgresServer

_DUE = 1_000
_STEPS = 9  # with other schedules in each: 9,000 of the 10,000 of the smallest store
_BEFORE_NOW = timedelta(milliseconds=500)
_UNIT = "ms"
_SEED = 5

Both = tuple[str, Steps, Steps]  # the store's name, Rota's steps, the bare ones
MakeSteps = Callable[[int], AbstractAsyncContextManager[Both]]


@dataclass(frozen=True, slots=True)
class Growth:
    """How long the steps took with so many schedules."""

    store: str
    count: int
    rota: Sample
    bare: Sample
    foreign_cores: float


def run(plan: Plan) -> list[Comparison]:
    with postgres() as server:
        return _compare(_on_sqlite, plan) + _compare(partial(_on_postgres, server), plan)


def _compare(steps: MakeSteps, plan: Plan) -> list[Comparison]:
    sizes = [10_000, 100_000]
    if not plan.is_quick:
        sizes.append(1_000_000)
    if plan.is_full:
        sizes.append(10_000_000)
    growths = [asyncio.run(_measure(steps, size, plan)) for size in sizes]
    return [*map(_line, growths), _flatness(growths)]


def _line(growth: Growth) -> Comparison:
    return Comparison(
        "P5",
        f"find and advance {_DUE:,} of {growth.count:,}, {growth.store}",
        growth.rota,
        "bare SQL",
        growth.bare,
        at_most_times(1.5),
        growth.foreign_cores,
    )


def _flatness(growths: list[Growth]) -> Comparison:
    """The slowest size in terms of the fastest."""
    rota, bare = [g.rota.median for g in growths], [g.bare.median for g in growths]
    foreign = max(growth.foreign_cores for growth in growths)
    return Comparison(
        "P5",
        f"growth over {growths[0].count:,}–{growths[-1].count:,}, {growths[0].store}",
        sample_of((max(rota) / min(rota),), "×", foreign),
        "bare SQL",
        sample_of((max(bare) / min(bare),), "×", foreign),
        at_most(1.3),
        foreign,
    )


async def _measure(make: MakeSteps, count: int, plan: Plan) -> Growth:
    takes: list[Growth] = []
    while is_taken_again([take.foreign_cores for take in takes], plan):
        print(f"   {count:,} schedules …", flush=True)
        async with make(count) as (store, rota, bare):  # anew: each schedule is fired once
            takes.append(await _take_turns(store, count, plan, rota, bare))
    return min(takes, key=lambda take: take.foreign_cores)


@asynccontextmanager
async def _on_sqlite(count: int) -> AsyncIterator[Both]:
    table = timetable()
    with temporary_home() as home:
        await fill(home.store, count)
        store = await open_sqlite(home.store)
        try:
            ownership = await own_all_shards(store)
            with (
                closing(RotaSteps(store, ownership, home.store, table)) as rota,
                closing(BareSteps(home.folder / "bare.db", count, table, FAR_AWAY)) as bare,
            ):
                yield "SQLite", rota, bare
        finally:
            await store.close()


@asynccontextmanager
async def _on_postgres(server: PostgresServer, count: int) -> AsyncIterator[Both]:
    async with postgres_steps(server, count) as (rota, bare):
        yield "PostgreSQL", rota, bare


async def _take_turns(store: str, count: int, plan: Plan, rota: Steps, bare: Steps) -> Growth:
    chosen = random.Random(_SEED).sample(range(count), _DUE * plan.pick(_STEPS, 3))  # noqa: S311 (no secret)
    os.sync()  # what the filling left to be written is written
    times: list[tuple[float, float]] = []
    with watched(plan) as seen:
        for start in range(0, len(chosen), _DUE):
            numbers = chosen[start : start + _DUE]
            times.append((await _time(rota, numbers), await _time(bare, numbers)))
    foreign = seen.foreign_cores
    rota_times, bare_times = zip(*times, strict=True)
    return Growth(
        store,
        count,
        sample_of(rota_times, _UNIT, foreign),
        sample_of(bare_times, _UNIT, foreign),
        foreign,
    )


async def _time(steps: Steps, numbers: list[int]) -> float:
    """Milliseconds of one step."""
    await steps.make_due(numbers, datetime.now(UTC) - _BEFORE_NOW)
    began = time.perf_counter()
    advanced = await steps.step(datetime.now(UTC), _DUE)
    took = time.perf_counter() - began
    if advanced != _DUE:
        raise RuntimeError(f"{advanced} schedules were advanced, not {_DUE}")
    return took * 1_000
