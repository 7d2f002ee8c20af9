"""P1: a backlog of durable no-op functions on PostgreSQL, drained by one and by two workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from bench import stamps
from bench.contest import Contestant, Figures, Plan, Result, take_turns, wait_for
from bench.figures import WARM_UP, Comparison, Goal, at_least_times, drain_rate
from bench.functions import app, noop
from bench.layers import per_run
from bench.peers import environment, node_environment
from bench.postgres import new_database, postgres
from bench.redis_server import install_redis, redis_server
from bench.rota_cluster import rota_cluster
from bench.rota_up import Home, temporary_home, wait_until_done
from testkit.servers.postgres import PostgresServer

_SLOTS = 2_000  # functions that take microseconds: what bounds a batch is this
_BATCH = 10_000  # the most that one call takes
_DRAIN_SECONDS = 300.0
_UNIT = "runs/s"
_WORKERS = (1, 2)

Command = Callable[..., list[str]]  # given action, address, count


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue beside Rota; `part` of the backlog is enough where it is slow."""

    name: str
    command: Command
    part: int = 1
    goal: Goal | None = None
    has_redis: bool = False


_PEERS = (
    Peer("PgQueuer", partial(environment.command, "pgqueuer_queue"), goal=at_least_times(1.5)),
    Peer(
        "graphile-worker",
        partial(node_environment.command, "graphile_queue"),
        goal=at_least_times(1),
    ),
    Peer("Procrastinate", partial(environment.command, "procrastinate_queue"), part=20),
    Peer("Celery, Redis", partial(environment.command, "celery_queue"), part=10, has_redis=True),
)


def run(plan: Plan) -> list[Comparison]:
    total = plan.pick(full=50_000, quick=10_000)
    has_redis = install_redis()
    peers = [peer for peer in _PEERS if has_redis or not peer.has_redis]
    if len(peers) < len(_PEERS):
        print("   without Celery: it needs a redis-server, which is not here", flush=True)
    with postgres() as server:
        return [line for n in _WORKERS for line in _compare(server, peers, total, n, plan)]


def _compare(
    server: PostgresServer, peers: list[Peer], total: int, workers: int, plan: Plan
) -> list[Comparison]:
    contestants = [Contestant("rota", partial(_drain_rota, server, total, workers))]
    contestants += [
        Contestant(peer.name, partial(_drain_peer, server, peer, total // peer.part, workers))
        for peer in peers
    ]
    results = take_turns(contestants, plan)
    return [_line(total, workers, peer, results) for peer in peers]


def _line(total: int, workers: int, peer: Peer, results: dict[str, Result]) -> Comparison:
    rota, other = results["rota"], results[peer.name]
    return Comparison(
        "P1",
        f"drain {total:,} functions, {workers} worker{'s' * (workers > 1)}",
        rota.sample("rate", _UNIT),
        peer.name,
        other.sample("rate", _UNIT),
        peer.goal,
        max(rota.foreign_cores, other.foreign_cores),
    )


def _drain_rota(server: PostgresServer, total: int, workers: int) -> Figures:
    with (
        temporary_home() as home,
        new_database(server) as store,
        rota_cluster(home, store) as cluster,
    ):
        app.apply(cluster.client)
        for done in range(0, total, _BATCH):
            cluster.client.trigger_many(noop.name, [{}] * min(_BATCH, total - done))
        for _ in range(workers):
            cluster.add_worker(_SLOTS)
        layers, warm = cluster.layers(server), int(total * WARM_UP)
        cluster.wait_for(lambda: stamps.count_ticks(home.stamps) >= warm, _DRAIN_SECONDS)
        before, done = layers.read(), stamps.count_ticks(home.stamps)
        cluster.wait_for(lambda: stamps.count_ticks(home.stamps) >= total, _DRAIN_SECONDS)
        wait_until_done(cluster.client, _DRAIN_SECONDS)
        return {**_figures(home, total), **per_run(before, layers.read(), total - done)}


def _drain_peer(server: PostgresServer, peer: Peer, total: int, workers: int) -> Figures:
    with temporary_home() as home, _address(server, peer, home) as address:
        environ = {stamps.VARIABLE: str(home.stamps)}
        environment.finish(peer.command("enqueue", address, total), environ)
        with ExitStack() as consumers:
            for _ in range(workers):
                consume = peer.command("consume", address, total)
                consumers.enter_context(environment.background(consume, environ))
            _wait_for_ticks(home, total)
            remaining = peer.command("remaining", address, total)
            wait_for(
                lambda: int(environment.finish(remaining, environ)) == 0,
                _DRAIN_SECONDS,
                f"{peer.name} to say that all is done",
            )
        return _figures(home, total)


@contextmanager
def _address(server: PostgresServer, peer: Peer, home: Home) -> Iterator[str]:
    place = redis_server(home.folder) if peer.has_redis else new_database(server)
    with place as address:
        yield address


def _wait_for_ticks(home: Home, total: int) -> None:
    wait_for(lambda: stamps.count_ticks(home.stamps) >= total, _DRAIN_SECONDS, "all functions")


def _figures(home: Home, total: int) -> Figures:
    ticks = stamps.read_ticks(home.stamps)
    if len(ticks) != total:
        raise RuntimeError(f"{len(ticks)} functions ran, not {total}")
    return {"rate": drain_rate(ticks)}
