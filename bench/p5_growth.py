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

from bench.contest import Plan
from bench.due_steps import BareSteps, RotaSteps, Steps, own_all_shards
from bench.due_steps_postgres import postgres_steps
from bench.figures import Comparison, Sample, at_most, at_most_times
from bench.machine import foreign_load, read_cpu, wait_until_quiet
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
    foreign_load: float


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
        growth.foreign_load,
    )


def _flatness(growths: list[Growth]) -> Comparison:
    """The slowest size in terms of the fastest."""
    rota, bare = [g.rota.median for g in growths], [g.bare.median for g in growths]
    return Comparison(
        "P5",
        f"growth over {growths[0].count:,}–{growths[-1].count:,}, {growths[0].store}",
        Sample((max(rota) / min(rota),), "×"),
        "bare SQL",
        Sample((max(bare) / min(bare),), "×"),
        at_most(1.3),
        max(growth.foreign_load for growth in growths),
    )


async def _measure(make: MakeSteps, count: int, plan: Plan) -> Growth:
    print(f"   {count:,} schedules …", flush=True)
    async with make(count) as (store, rota, bare):
        return await _take_turns(store, count, plan, rota, bare)


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
    wait_until_quiet(plan.patience_seconds)
    before = read_cpu()
    times: list[tuple[float, float]] = []
    for start in range(0, len(chosen), _DUE):
        numbers = chosen[start : start + _DUE]
        times.append((await _time(rota, numbers), await _time(bare, numbers)))
    rota_times, bare_times = zip(*times, strict=True)
    load = foreign_load(before, read_cpu())
    return Growth(store, count, Sample(rota_times, _UNIT), Sample(bare_times, _UNIT), load)


async def _time(steps: Steps, numbers: list[int]) -> float:
    """Milliseconds of one step."""
    await steps.make_due(numbers, datetime.now(UTC) - _BEFORE_NOW)
    began = time.perf_counter()
    advanced = await steps.step(datetime.now(UTC), _DUE)
    took = time.perf_counter() - began
    if advanced != _DUE:
        raise RuntimeError(f"{advanced} schedules were advanced, not {_DUE}")
    return took * 1_000
