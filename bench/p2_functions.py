"""P2: a backlog of durable no-op functions on SQLite, drained by one worker process."""

from __future__ import annotations

from functools import partial

from bench import stamps
from bench.contest import Contestant, Figures, Plan, take_turns, wait_for
from bench.figures import Comparison, at_least_times, drain_rate
from bench.functions import app, noop
from bench.peers import environment
from bench.rota_up import FUNCTIONS, Home, rota_up, temporary_home, wait_until_done

_SLOTS = 1_000  # functions that take microseconds: what bounds a batch is this
_BATCH = 10_000  # the most that one call takes
_DRAIN_SECONDS = 300.0
_UNIT = "runs/s"


def run(plan: Plan) -> list[Comparison]:
    total = plan.pick(full=20_000, quick=2_000)
    peers = {"huey": "default", "huey, fsync": "fsync"}
    contestants = [Contestant("rota", partial(_drain_rota, total))]
    contestants += [
        Contestant(name, partial(_drain_huey, total, durability))
        for name, durability in peers.items()
    ]
    results = take_turns(contestants, plan)
    rota = results["rota"]
    return [
        Comparison(
            "P2",
            f"drain {total:,} no-op functions",
            rota.sample("rate", _UNIT),
            peer,
            results[peer].sample("rate", _UNIT),
            at_least_times(2),
            max(rota.foreign_cores, results[peer].foreign_cores),
        )
        for peer in peers
    ]


def _drain_rota(total: int) -> Figures:
    with temporary_home() as home:
        with rota_up(home, slots=1) as server:  # serves no functions: the backlog stays
            app.apply(server.client)
            for done in range(0, total, _BATCH):
                server.client.trigger_many(noop.name, [{}] * min(_BATCH, total - done))
        with rota_up(home, slots=_SLOTS, app=FUNCTIONS) as server:
            _wait_for_ticks(home, total)
            wait_until_done(server.client, _DRAIN_SECONDS)
        return _figures(home, total)


def _drain_huey(total: int, durability: str) -> Figures:
    with temporary_home() as home:
        arguments = [home.folder / "huey.db", total, durability]
        environ = {stamps.VARIABLE: str(home.stamps)}
        environment.run("huey_queue", "enqueue", *arguments, environ=environ)
        with environment.running("huey_queue", "consume", *arguments, environ=environ):
            _wait_for_ticks(home, total)
        return _figures(home, total)


def _wait_for_ticks(home: Home, total: int) -> None:
    wait_for(lambda: stamps.count_ticks(home.stamps) >= total, _DRAIN_SECONDS, "all functions")


def _figures(home: Home, total: int) -> Figures:
    ticks = stamps.read_ticks(home.stamps)
    if len(ticks) != total:
        raise RuntimeError(f"{len(ticks)} functions ran, not {total}")
    return {"rate": drain_rate(ticks)}
