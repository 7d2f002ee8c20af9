"""P9: a forecast of a day over 5,000 jobs."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import cast

from bench.contest import Plan, Result, Turn, is_taken_again, watched
from bench.figures import Comparison, at_most
from bench.rota_up import temporary_home
from rota.domain.jobfile import read_file
from rota.operations import definitions
from rota.operations.engine import Engine
from rota.operations.forecasts import Outlook, Question, look_ahead
from rota.ports.blobs import Blobs
from rota.queue.local import LocalQueue
from rota.store.sqlite.opening import open_sqlite
from testkit.builders import hello

_SEED = 9
_WORKERS, _SLOTS = 20, 50
_LENGTHS = ("1s", "5s", "20s", "1m")
_APPLIED = 1_000  # jobs of one file
_FOR_EVER = timedelta(days=365)

Make = Callable[[random.Random], str]


def run(plan: Plan) -> list[Comparison]:
    count = plan.pick(full=5_000, quick=500)
    return [
        asyncio.run(_measure(plan, count, "once a day", _daily)),
        asyncio.run(_measure(plan, count, "60 % daily, 30 % hourly, 10 % every 5 min", _mixed)),
    ]


def _daily(choose: random.Random) -> str:
    return f"{choose.randrange(60)} {choose.randrange(24)} * * *"


def _mixed(choose: random.Random) -> str:
    kind = choose.random()
    if kind < 0.6:
        return _daily(choose)
    return f"{choose.randrange(60)} * * * *" if kind < 0.9 else "*/5 * * * *"


async def _measure(plan: Plan, count: int, words: str, make: Make) -> Comparison:
    with temporary_home() as home:
        home.data.mkdir(parents=True, exist_ok=True)
        store = await open_sqlite(home.store)
        try:
            engine = Engine(store, LocalQueue(), cast("Blobs", None))
            await _fill(engine, count, make)
            return await _time(plan, engine, f"a day of {count:,} jobs, {words}")
        finally:
            await store.close()


async def _fill(engine: Engine, count: int, make: Make) -> None:
    jobs = list(_jobs(count, make))
    for first in range(0, count, _APPLIED):
        text = json.dumps({"jobs": jobs[first : first + _APPLIED]})
        await definitions.apply(engine, read_file(text, name=f"set-{first}"), actor="bench")
    for number in range(_WORKERS):
        await engine.store.register(hello(f"worker-{number}", slots=_SLOTS), _FOR_EVER)


def _jobs(count: int, make: Make) -> Iterator[dict[str, object]]:
    choose = random.Random(_SEED)  # noqa: S311 (no secret)
    for number in range(count):
        yield {
            "name": f"job-{number}",
            "schedule": make(choose),
            "expect": choose.choice(_LENGTHS),
            "steps": [{"run": "true"}],
        }


async def _time(plan: Plan, engine: Engine, what: str) -> Comparison:
    result = Result(tuple([await _take_turn(plan, engine) for _ in range(plan.repeats)]))
    sample, load = result.sample("seconds", "s"), result.foreign_cores
    return Comparison("P9", what, sample, goal=at_most(2), foreign_cores=load)


async def _take_turn(plan: Plan, engine: Engine) -> Turn:
    """Take a turn, and again while others disturb it; the quietest if they always do."""
    takes: list[Turn] = []
    while is_taken_again([turn.foreign_cores for turn in takes], plan):
        cold = Engine(engine.store, engine.queue, engine.blobs)
        with watched(plan) as seen:
            began = time.perf_counter()
            outlook = await look_ahead(cold, Question("default"))
            seconds = time.perf_counter() - began
        _check(outlook)
        takes.append(Turn({"seconds": seconds}, seen.foreign_cores))
    return min(takes, key=lambda turn: turn.foreign_cores)


def _check(outlook: Outlook) -> None:
    if outlook.forecast.is_cut or not outlook.starts:
        raise RuntimeError(f"{outlook.starts:,} starts, not all there are")
