"""P2: a backlog of durable no-op functions on SQLite, drained by one worker process.

Of two kinds: runs that are QUEUED when the drain begins, and runs that are BLOCKED until then, as
no worker could take them, and are released when one comes that can.
"""

from __future__ import annotations

from functools import partial

from bench import stamps
from bench.contest import Contestant, Figures, Plan, Result, take_turns, wait_for
from bench.figures import Comparison, at_least_times, drain_rate
from bench.functions import app, noop
from bench.peers import environment
from bench.rota_up import FUNCTIONS, Home, rota_up, temporary_home, wait_until_done
from rota.sdk.client import Client

_SLOTS = 1_000  # functions that take microseconds: what bounds a batch is this
_BATCH = 10_000  # the most that one call takes
_DRAIN_SECONDS = 300.0
_UNIT = "runs/s"


def run(plan: Plan) -> list[Comparison]:
    total = plan.pick(full=20_000, quick=2_000)
    peers = {"huey": "default", "huey, fsync": "fsync"}
    backlogs = {
        f"drain {total:,} functions, queued": partial(_drain_queued, total),
        f"drain {total:,} functions, blocked until a worker returns": partial(
            _drain_blocked, total
        ),
    }
    contestants = [Contestant(what, drain) for what, drain in backlogs.items()]
    contestants += [
        Contestant(name, partial(_drain_huey, total, durability))
        for name, durability in peers.items()
    ]
    results = take_turns(contestants, plan)
    return [_line(what, peer, results) for what in backlogs for peer in peers]


def _line(what: str, peer: str, results: dict[str, Result]) -> Comparison:
    return Comparison(
        "P2",
        what,
        results[what].sample("rate", _UNIT),
        peer,
        results[peer].sample("rate", _UNIT),
        at_least_times(2),
        max(results[what].foreign_cores, results[peer].foreign_cores),
    )


def _drain_queued(total: int) -> Figures:
    """The worker is there and could take them, but gets nothing until it is resumed."""
    with temporary_home() as home, rota_up(home, slots=_SLOTS, app=FUNCTIONS) as server:
        [worker] = server.client.list_workers().items
        server.client.drain_worker(worker.worker)
        _submit(server.client, total, state="QUEUED")
        server.client.resume_worker(worker.worker)
        _wait_for_ticks(home, total)
        wait_until_done(server.client, _DRAIN_SECONDS)
        return _figures(home, total)


def _drain_blocked(total: int) -> Figures:
    """The only worker serves no functions; the one that follows it does."""
    with temporary_home() as home:
        with rota_up(home, slots=1) as server:
            _submit(server.client, total, state="BLOCKED")
        with rota_up(home, slots=_SLOTS, app=FUNCTIONS) as server:
            _wait_for_ticks(home, total)
            wait_until_done(server.client, _DRAIN_SECONDS)
        return _figures(home, total)


def _submit(client: Client, total: int, *, state: str) -> None:
    """Submit the backlog; all of it must be in the state that is to be measured."""
    app.apply(client)
    for done in range(0, total, _BATCH):
        client.trigger_many(noop.name, [{}] * min(_BATCH, total - done))
    others = [run for run in client.list_runs(active=True, limit=1_000).items if run.state != state]
    if others:
        raise RuntimeError(f"the backlog is {others[0].state}, where {state} is measured")


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
