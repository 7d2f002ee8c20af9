"""P6: how fast work is accepted on PostgreSQL: run by run, many runs in a call, and as a cart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import urlsplit

from bench.contest import Contestant, Figures, Plan, take_turns
from bench.figures import Comparison, at_least, at_most
from bench.functions import app, noop
from bench.layers import Layers, per_run
from bench.postgres import new_database, postgres
from bench.rota_cluster import RotaCluster, rota_cluster
from bench.rota_up import temporary_home
from testkit.servers.postgres import PostgresServer

_CLIENTS = 32
_BATCH = 10_000  # the most that one call takes
_SINGLE, _BULK, _CART = "single calls", "bulk calls", "cart"


def run(plan: Plan) -> list[Comparison]:
    calls = plan.pick(full=10_000, quick=1_000)
    runs = plan.pick(full=200_000, quick=20_000)
    items = plan.pick(full=100_000, quick=10_000)
    with postgres() as server:
        contestants = [
            Contestant(_SINGLE, partial(_submit_singly, server, calls)),
            Contestant(_BULK, partial(_submit_in_bulk, server, runs)),
            Contestant(_CART, partial(_submit_cart, server, items)),
        ]
        results = take_turns(contestants, plan)
    goals = {_SINGLE: at_least(1_000), _BULK: at_least(30_000), _CART: at_most(5)}
    said = {
        _SINGLE: f"submit {calls:,} runs over REST, {_CLIENTS} clients",
        _BULK: f"submit {runs:,} runs over REST, {_BATCH:,} in a call",
        _CART: f"submit a cart of {items:,} items over REST, to accepted",
    }
    figures = {_SINGLE: ("rate", "runs/s"), _BULK: ("rate", "runs/s"), _CART: ("accepted", "s")}
    return [
        Comparison(
            "P6",
            said[name],
            result.sample(*figures[name]),
            goal=goals[name],
            foreign_cores=result.foreign_cores,
        )
        for name, result in results.items()
    ]


def _submit_singly(server: PostgresServer, calls: int) -> Figures:
    with (
        temporary_home() as home,
        new_database(server) as store,
        rota_cluster(home, store) as cluster,
    ):
        app.apply(cluster.client)
        layers = cluster.layers(server)
        seconds, cost = _timed(lambda: asyncio.run(_call_all(cluster, calls)), layers, calls)
        return {"rate": calls / seconds, **cost}


async def _call_all(cluster: RotaCluster, calls: int) -> None:
    numbers = iter(range(calls))
    await asyncio.gather(*(_call_again_and_again(cluster, numbers) for _ in range(_CLIENTS)))


async def _call_again_and_again(cluster: RotaCluster, numbers: Iterator[int]) -> None:
    """One client with one connection, by hand: a client library costs more than the call."""
    place = urlsplit(cluster.servers[0].url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    request = (
        f"POST /api/v1/jobs/{noop.name}/runs HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Authorization: Bearer {cluster.token}\r\nContent-Length: 0\r\n\r\n"
    ).encode()
    for _ in numbers:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status, *headers = head.decode().lower().split("\r\n")
        if " 202 " not in f"{status} ":
            raise RuntimeError(f"a run was not accepted: {status}")
        [length] = [line for line in headers if line.startswith("content-length:")]
        await reader.readexactly(int(length.partition(":")[2]))
    writer.close()
    await writer.wait_closed()


def _submit_in_bulk(server: PostgresServer, runs: int) -> Figures:
    with (
        temporary_home() as home,
        new_database(server) as store,
        rota_cluster(home, store) as cluster,
    ):
        client = cluster.client
        app.apply(client)

        def call_all() -> None:
            for _ in range(0, runs, _BATCH):
                client.trigger_many(noop.name, [{}] * _BATCH)

        seconds, cost = _timed(call_all, cluster.layers(server), runs)
        return {"rate": runs / seconds, **cost}


def _submit_cart(server: PostgresServer, items: int) -> Figures:
    with (
        temporary_home() as home,
        new_database(server) as store,
        rota_cluster(home, store) as cluster,
    ):
        app.apply(cluster.client)
        cart = {"name": "all", "job": noop.name, "order": "groups", "group_size": [1, 5, 20, "10%"]}
        keys = [{"key": f"item-{number}"} for number in range(items)]
        layers = cluster.layers(server)
        seconds, cost = _timed(lambda: cluster.client.submit_cart(cart, keys), layers, items)
        return {"accepted": seconds, **cost}


def _timed(work: Callable[[], object], layers: Layers, runs: int) -> tuple[float, Figures]:
    """How many seconds it took, and what it cost each layer for one run."""
    before, began = layers.read(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return seconds, per_run(before, layers.read(), runs)
