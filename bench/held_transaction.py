"""A foreign transaction that is held open: by how much it slows the drain of a backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import asyncpg

from bench import stamps
from bench.contest import Contestant, Figures, Plan, take_turns
from bench.figures import Comparison, at_least_times, drain_rate
from bench.functions import app, noop
from bench.postgres import new_database, postgres
from bench.rota_cluster import rota_cluster
from bench.rota_up import temporary_home, wait_until_done
from testkit.servers.postgres import PostgresServer

_SLOTS = 100  # few, so that there are many claims
_BATCH = 10_000  # the most that one call takes
_DRAIN_SECONDS = 300.0
_UNIT = "runs/s"
_HELD, _FREE = "held", "not held"
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"


def run(plan: Plan) -> list[Comparison]:
    total = plan.pick(full=50_000, quick=5_000)
    with postgres() as server:
        results = take_turns(
            [
                Contestant(_HELD, partial(_drain, server, total, is_held=True)),
                Contestant(_FREE, partial(_drain, server, total, is_held=False)),
            ],
            plan,
        )
    held, free = results[_HELD], results[_FREE]
    return [
        Comparison(
            "held",
            f"drain {total:,} functions while a foreign transaction is open",
            held.sample("rate", _UNIT),
            "without it",
            free.sample("rate", _UNIT),
            at_least_times(0.5),
            max(held.foreign_cores, free.foreign_cores),
        )
    ]


def _drain(server: PostgresServer, total: int, *, is_held: bool) -> Figures:
    with (
        temporary_home() as home,
        new_database(server) as store,
        rota_cluster(home, store) as cluster,
    ):
        app.apply(cluster.client)
        for done in range(0, total, _BATCH):
            cluster.client.trigger_many(noop.name, [{}] * min(_BATCH, total - done))
        with _held_open(store) if is_held else nullcontext():
            cluster.add_worker(_SLOTS)
            cluster.wait_for(lambda: stamps.count_ticks(home.stamps) >= total, _DRAIN_SECONDS)
            wait_until_done(cluster.client, _DRAIN_SECONDS)
        return {"rate": drain_rate(stamps.read_ticks(home.stamps))}


@contextmanager
def _held_open(address: str) -> Iterator[None]:
    """A transaction that has looked once, so that nothing it could see may be removed."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(address))
        try:
            runner.run(connection.execute(_BEGIN))
            yield
        finally:
            runner.run(connection.close())
