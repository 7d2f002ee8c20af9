"""P5: one step of find and advance, with ever more schedules stored."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.contest import Plan
from bench.due_steps import BareSteps, RotaSteps
from bench.figures import Comparison, Sample, at_most, at_most_times
from bench.machine import foreign_load, read_cpu, wait_until_quiet
from bench.rota_up import temporary_home
from bench.schedules import FAR_AWAY, fill, timetable
from rota.adapters.store.sqlite.opening import open_sqlite

_DUE = 1_000
_STEPS = 9  # with other schedules in each: 9,000 of the 10,000 of the smallest store
_BEFORE_NOW = timedelta(milliseconds=500)
_UNIT = "ms"
_SEED = 5


@dataclass(frozen=True, slots=True)
class Growth:
    """How long the steps took with so many schedules."""

    count: int
    rota: Sample
    bare: Sample
    foreign_load: float


def run(plan: Plan) -> list[Comparison]:
    sizes = [10_000, 100_000]
    if not plan.is_quick:
        sizes.append(1_000_000)
    if plan.is_full:
        sizes.append(10_000_000)
    growths = [asyncio.run(_measure(size, plan)) for size in sizes]
    return [*map(_line, growths), _flatness(growths)]


def _line(growth: Growth) -> Comparison:
    return Comparison(
        "P5",
        f"find and advance {_DUE:,} of {growth.count:,}",
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
        f"growth over {growths[0].count:,}–{growths[-1].count:,} schedules",
        Sample((max(rota) / min(rota),), "×"),
        "bare SQL",
        Sample((max(bare) / min(bare),), "×"),
        at_most(1.3),
        max(growth.foreign_load for growth in growths),
    )


async def _measure(count: int, plan: Plan) -> Growth:
    print(f"   {count:,} schedules …", flush=True)
    table = timetable()
    with temporary_home() as home:
        await fill(home.store, count)
        store = await open_sqlite(home.store)
        try:
            with (
                closing(RotaSteps(store, home.store, table)) as rota,
                closing(BareSteps(home.folder / "bare.db", count, table, FAR_AWAY)) as bare,
            ):
                return await _take_turns(count, plan, rota, bare)
        finally:
            await store.close()


async def _take_turns(count: int, plan: Plan, rota: RotaSteps, bare: BareSteps) -> Growth:
    chosen = random.Random(_SEED).sample(range(count), _DUE * plan.pick(_STEPS, 3))  # noqa: S311 (no secret)
    wait_until_quiet(plan.patience_seconds)
    before = read_cpu()
    times: list[tuple[float, float]] = []
    for start in range(0, len(chosen), _DUE):
        numbers = chosen[start : start + _DUE]
        times.append((await _time(rota, numbers), await _time(bare, numbers)))
    rota_times, bare_times = zip(*times, strict=True)
    load = foreign_load(before, read_cpu())
    return Growth(count, Sample(rota_times, _UNIT), Sample(bare_times, _UNIT), load)


async def _time(steps: RotaSteps | BareSteps, numbers: list[int]) -> float:
    """Milliseconds of one step."""
    steps.make_due(numbers, datetime.now(UTC) - _BEFORE_NOW)
    began = time.perf_counter()
    advanced = await steps.step(datetime.now(UTC), _DUE)
    took = time.perf_counter() - began
    if advanced != _DUE:
        raise RuntimeError(f"{advanced} schedules were advanced, not {_DUE}")
    return took * 1_000
