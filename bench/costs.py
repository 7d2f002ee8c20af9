"""What one run costs a checkout: processor time of all processes, one turn of one workload.

`bench.compare` runs this file with the Python of either checkout, from its folder: then `bench` and
`rota` are those of that checkout, and the work is the same for both. So only what older checkouts
have, too, is imported here.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import lateness, processes, stamps
from bench.contest import Figures, wait_for
from bench.figures import at_most
from bench.functions import app, noop
from bench.lateness import Pattern, _patiently
from bench.p1_backlog import _drain_rota
from bench.p5_growth import _on_postgres, _on_sqlite
from bench.p6_submit import _submit_cart, _submit_in_bulk, _submit_singly
from bench.postgres import new_database, postgres
from bench.rota_cluster import rota_cluster
from bench.rota_up import FUNCTIONS, Server, rota_up, temporary_home, wait_until_done

if TYPE_CHECKING:  # their places may differ between checkouts
    from bench.due_steps import Steps
    from rota.sdk.client import Client
    from testkit.servers.postgres import PostgresServer

Costs = dict[str, float]  # microseconds a run, by what was done

_SLOTS = 1_000
_COMMAND_SLOTS = 64
_BATCH = 10_000  # the most that one call takes
_LAYER = " µs"  # how the names of figures end that are a layer's processor time
_WARM_UP = 0.1  # share of a drain that is not counted
_SECONDS = 600.0
_DUE, _STEPS, _STORED = 1_000, 9, 10_000
_SEED = 5


def measure_p1(part: float) -> Costs:
    """Drain a backlog on PostgreSQL, with one worker and with two."""
    total = int(50_000 * part)
    with postgres() as server:
        return {
            f"drain, PostgreSQL, {workers} worker{'s' * (workers > 1)}": _sum_of_layers(
                _drain_rota(server, total, workers)
            )
            for workers in (1, 2)
        }


def measure_p2(part: float) -> Costs:
    """Drain a backlog on SQLite that is queued, and one that is blocked until a worker returns."""
    total = int(20_000 * part)
    return {
        "drain, SQLite, queued": _drain_queued(total),
        "drain, SQLite, blocked until a worker returns": _drain_blocked(total),
    }


def measure_p3(part: float) -> Costs:
    """Submit and run `/bin/true`, given as a list and through the shell."""
    total = int(5_000 * part)
    spellings: Mapping[str, str | list[str]] = {
        "[/bin/true]": ["/bin/true"],
        "/bin/true": "/bin/true",
    }
    return {f"run: {name}": _run_commands(total, command) for name, command in spellings.items()}


def measure_p4(part: float) -> Costs:
    """Fire, run and end functions that are due one by one, and at once, on both stores."""
    patterns = [
        Pattern("100 due/s", int(3_000 * part), 0.01, "p99", at_most(5)),
        Pattern("due at once", int(1_000 * part), 0.0, "max", at_most(100)),
    ]
    with postgres() as server:
        stores: Mapping[str, Callable[[Pattern, int], Figures]] = {
            "SQLite": _fire_on_sqlite,
            "PostgreSQL": partial(_fire_on_postgres, server),
        }
        return {
            f"{pattern.title}, {store}": _sum_of_layers(_patiently(fire, pattern))
            for pattern in patterns
            for store, fire in stores.items()
        }


def measure_p5(part: float) -> Costs:
    """Find, fire and advance 1,000 of 10,000 schedules in the store alone."""
    steps = max(int(_STEPS * part), 1)
    with postgres() as server:
        return {
            "find and advance, SQLite": asyncio.run(_step_on_sqlite(steps)),
            "find and advance, PostgreSQL": asyncio.run(_step_on_postgres(server, steps)),
        }


def measure_p6(part: float) -> Costs:
    """Submit over REST to a server on PostgreSQL; the clients do not count."""
    with postgres() as server:
        ways = {
            "submit, single calls": _submit_singly(server, int(10_000 * part)),
            "submit, bulk calls": _submit_in_bulk(server, _bulk(part)),
            "submit, cart": _submit_cart(server, int(100_000 * part)),
        }
    return {what: _sum_of_layers(figures) for what, figures in ways.items()}


MEASURES: Mapping[str, Callable[[float], Costs]] = {
    "P1": measure_p1,
    "P2": measure_p2,
    "P3": measure_p3,
    "P4": measure_p4,
    "P5": measure_p5,
    "P6": measure_p6,
}


def _bulk(part: float) -> int:
    """A multiple of what one call takes."""
    return max(int(200_000 * part) // _BATCH, 1) * _BATCH


def _sum_of_layers(figures: Figures) -> float:
    return sum(value for name, value in figures.items() if name.endswith(_LAYER))


def _drain_queued(total: int) -> float:
    with temporary_home() as home, rota_up(home, slots=_SLOTS, app=FUNCTIONS) as server:
        [worker] = server.client.list_workers().items
        server.client.drain_worker(worker.worker)
        _submit(server.client, total)
        server.client.resume_worker(worker.worker)
        return _cost_of_drain(server, home.stamps, total)


def _drain_blocked(total: int) -> float:
    with temporary_home() as home:
        with rota_up(home, slots=1) as server:  # serves no functions
            _submit(server.client, total)
        with rota_up(home, slots=_SLOTS, app=FUNCTIONS) as server:
            return _cost_of_drain(server, home.stamps, total)


def _submit(client: Client, total: int) -> None:
    app.apply(client)
    for done in range(0, total, _BATCH):
        client.trigger_many(noop.name, [{}] * min(_BATCH, total - done))


def _cost_of_drain(server: Server, path: Path, total: int) -> float:
    """From the end of the warm-up to the end of the last run, for each run of that time."""
    warm = int(total * _WARM_UP)
    wait_for(lambda: stamps.count_ticks(path) >= warm, _SECONDS, "the first functions")
    before, done = processes.cpu_seconds(server.pid), stamps.count_ticks(path)
    wait_for(lambda: stamps.count_ticks(path) >= total, _SECONDS, "all functions")
    wait_until_done(server.client, _SECONDS)
    return (processes.cpu_seconds(server.pid) - before) / (total - done) * 1e6


def _run_commands(total: int, command: str | list[str]) -> float:
    job = {"name": "true", "steps": [{"run": command}]}
    with temporary_home() as home, rota_up(home, slots=_COMMAND_SLOTS) as server:
        server.client.apply(json.dumps({"jobs": [job]}))
        before = processes.cpu_seconds(server.pid)
        server.client.trigger_many("true", [{}] * total)
        wait_until_done(server.client, _SECONDS)
        return (processes.cpu_seconds(server.pid) - before) / total * 1e6


def _fire_on_sqlite(pattern: Pattern, patience: int) -> Figures:
    with temporary_home() as home, rota_up(home, slots=_SLOTS, app=FUNCTIONS) as server:
        return _cost_of_firing(
            (pattern, patience),
            server.client,
            lambda: processes.cpu_seconds(server.pid),
            lambda: pattern.is_done(home),
        )


def _fire_on_postgres(server: PostgresServer, pattern: Pattern, patience: int) -> Figures:
    with (
        temporary_home() as home,
        new_database(server) as store,
        rota_cluster(home, store) as cluster,
    ):
        cluster.add_worker(_SLOTS).wait_until_ready()
        layers = cluster.layers(server)
        return _cost_of_firing(
            (pattern, patience),
            cluster.client,
            lambda: sum(layers.read().values()),
            lambda: pattern.is_done(home),
        )


def _cost_of_firing(
    asked: tuple[Pattern, int],
    client: Client,
    worked: Callable[[], float],
    is_done: Callable[[], bool],
) -> Figures:
    """From just before the first due time until no run is under way.

    What a server and a worker do in that time whether anything is due or not is part of it.
    """
    pattern, patience = asked
    first = pattern.first_due(patience)
    client.apply(lateness.job_file(pattern.due_times(first)))
    lateness.check_in_time(first)
    time.sleep(max(first - 1.0 - time.time(), 0.0))
    before = worked()
    wait_for(is_done, _SECONDS, "all jobs")
    wait_until_done(client, _SECONDS)
    return {"all µs": (worked() - before) / pattern.count * 1e6}


async def _step_on_sqlite(steps: int) -> float:
    async with _on_sqlite(_STORED) as (_, rota, _):
        return await _cost_of_steps(rota, steps, time.process_time)


async def _step_on_postgres(server: PostgresServer, steps: int) -> float:
    def worked() -> float:
        return time.process_time() + _postgres_seconds(server)

    async with _on_postgres(server, _STORED) as (_, rota, _):
        return await _cost_of_steps(rota, steps, worked)


async def _cost_of_steps(rota: Steps, steps: int, worked: Callable[[], float]) -> float:
    chosen = random.Random(_SEED).sample(range(_STORED), _DUE * steps)  # noqa: S311 (no secret)
    spent = 0.0
    # As a server does when it is ready. How many full collections of all that was imported fall
    # inside of the steps is chance, and each is 4 % of them.
    gc.collect()
    gc.freeze()
    for start in range(0, len(chosen), _DUE):
        due = datetime.now(UTC) - timedelta(milliseconds=500)
        await rota.make_due(chosen[start : start + _DUE], due)
        before = worked()
        advanced = await rota.step(datetime.now(UTC), _DUE)
        spent += worked() - before
        if advanced != _DUE:
            raise RuntimeError(f"{advanced} schedules were advanced, not {_DUE}")
    return spent / len(chosen) * 1e6


def _postgres_seconds(server: PostgresServer) -> float:
    """Of its processes that are alive; in nanoseconds, as a step takes only some clock ticks."""
    assert server.pid is not None
    files = [Path(f"/proc/{each.pid}/schedstat") for each in processes.tree(server.pid)]
    return sum(int(file.read_text(encoding="ascii").split()[0]) for file in files) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=MEASURES)
    parser.add_argument("part", type=float, help="of the usual number of runs")
    parser.add_argument("answer", type=Path, help="file for the costs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what was started
    costs = MEASURES[options.workload](options.part)
    options.answer.write_text(json.dumps(costs), encoding="utf-8")


if __name__ == "__main__":
    main()
