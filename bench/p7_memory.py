"""P7: memory of an idle `rota up`, and what a million schedules add to it."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from bench import processes
from bench.contest import Contestant, Figures, Plan, take_turns
from bench.figures import Comparison, at_most
from bench.rota_up import Home, rota_up, temporary_home
from bench.schedules import fill

_SLOTS = 4  # what `rota up` has by default
_SETTLE_SECONDS = 8.0  # beyond the scheduler's look-ahead
_UNIT = "MB"


def run(plan: Plan) -> list[Comparison]:
    count = plan.pick(full=1_000_000, quick=10_000)
    with temporary_home() as empty, temporary_home() as filled:
        print(f"   {count:,} schedules …", flush=True)
        asyncio.run(fill(filled.store, count))
        contestants = [
            Contestant("empty", partial(_measure, empty)),
            Contestant("filled", partial(_measure, filled)),
        ]
        results = take_turns(contestants, plan)
    idle, loaded = (results[name].sample("memory", _UNIT) for name in ("empty", "filled"))
    what = f"more with {count:,} schedules"
    alone, together = (results[name].foreign_cores for name in ("empty", "filled"))
    return [
        Comparison(
            "P7", "idle rota up, all its processes", idle, goal=at_most(120), foreign_cores=alone
        ),
        Comparison(
            "P7", what, loaded.less(idle), goal=at_most(20), foreign_cores=max(alone, together)
        ),
    ]


def _measure(home: Home) -> Figures:
    with rota_up(home, slots=_SLOTS) as server:
        time.sleep(_SETTLE_SECONDS)
        return {"memory": processes.memory_bytes(server.pid) / 1e6}
