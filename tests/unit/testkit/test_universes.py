"""What a universe is made of: virtual time, nodes that freeze, connections that break."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from random import Random
from typing import cast

import pytest

from rota.domain.carts import definition
from rota.domain.carts.definition import Between, CartRules
from rota.domain.errors import Conflict
from rota.ports.store import RunStore
from rota.ports.work import Order, Watch, Work
from rota.server.dispatcher.floor import Floor
from testkit.universes.cart_evidence import CartWitness
from testkit.universes.catalogue import catalogue
from testkit.universes.evidence import Violation, Witness
from testkit.universes.machine import Machine
from testkit.universes.network import Connection, Network
from testkit.universes.nodes import Node, NodeClock
from testkit.universes.plan import CALM, Weather
from testkit.universes.server import Server, Staff
from testkit.universes.surroundings import Surroundings
from testkit.universes.timeline import SECOND, Timeline

pytestmark = pytest.mark.anyio


class Scene:
    """A timeline with two nodes, and what was heard there."""

    def __init__(self, weather: Weather = CALM) -> None:
        random = Random(1)
        self.timeline = Timeline(random)
        witness = Witness(self.timeline, catalogue(), has_quota=False)
        self.network = Network(self.timeline, random, weather, witness)
        self.surroundings = Surroundings(self.timeline, self.network, witness, random)
        self.clock = NodeClock(self.timeline, rate=1.0, offset=100.0)
        self.worker, self.server = (Node(self.timeline, self.clock) for _ in range(2))
        self.heard: list[object] = []
        for node in (self.worker, self.server):
            node.begin_life()

    async def hear(self, what: object) -> None:
        self.heard.append(what)

    def connection(self) -> Connection:
        return Connection(self.worker, self.server, self.hear, self.hear, self.hear)

    async def after(self, seconds: float) -> list[object]:
        await self.timeline.run(self.timeline.now + int(seconds * SECOND))
        return self.heard


async def test_a_frozen_node_goes_on_in_its_own_order() -> None:
    scene = Scene()
    for number in range(20):
        scene.worker.later(number / 20, partial(scene.hear, number))

    scene.worker.freeze(5)

    assert await scene.after(4) == []
    assert await scene.after(2) == list(range(20))


async def test_of_an_ended_life_nothing_happens() -> None:
    scene = Scene()
    scene.worker.later(1, partial(scene.hear, "of the first life"))

    scene.worker.end_life()
    scene.worker.begin_life()

    assert await scene.after(2) == []


async def test_orders_arrive_in_their_order_however_long_each_takes() -> None:
    scene = Scene(Weather(loss=0.0, doubling=0.0, delay=0.5))
    connection = scene.connection()
    orders: list[Order] = [Watch((str(number),)) for number in range(20)]

    for order in orders:
        scene.network.order(connection, order)

    assert await scene.after(60) == orders


async def test_a_lost_message_takes_its_connection_with_it_and_both_ends_notice() -> None:
    scene = Scene(Weather(loss=1.0, doubling=0.0, delay=0.0))
    connection = scene.connection()

    scene.network.order(connection, Watch(("r_1",)))
    scene.network.order(connection, Watch(("r_2",)))

    assert await scene.after(10) == [connection, connection]


async def test_a_guardian_counts_by_its_own_clock() -> None:
    scene = Scene()
    slow = NodeClock(scene.timeline, rate=0.5, offset=100.0)
    machine = Machine("worker", slow, scene.surroundings, failing=0.0)
    machine.on_kill = partial(scene.hear, "killed")

    machine.prolong(slow.monotonic() + 2)
    machine.prolong(slow.monotonic() + 3)

    assert await scene.after(5.9) == []
    assert await scene.after(0.2) == ["killed"]


class CartScene:
    """A cart of two waves that soaks for four seconds; the first item is claimed and has ended."""

    def __init__(self, *, ended_at: int) -> None:
        self.complaints: list[str] = []
        self.witness = CartWitness(lambda promise, _: self.complaints.append(promise))
        rules = CartRules(order=definition.Order.SERIAL, between=Between(wait=timedelta(seconds=4)))
        self.witness.submitted("c_1", rules, {"first": 1, "second": 2})
        self.witness.claimed(work("first"), 0)
        self.witness.started(work("first"))
        self.witness.ended(work("first"), ended_at)

    def claim_second(self, now: int) -> list[str]:
        self.witness.claimed(work("second"), now)
        return self.complaints


def work(item: str) -> Work:
    return Work(f"r_{item}", 1, "j_plain", 1, 0, None, cart="c_1", item=item)


async def test_a_wave_soaks_from_the_end_of_the_one_before_it() -> None:
    assert CartScene(ended_at=10 * SECOND).claim_second(14 * SECOND) == []
    assert CartScene(ended_at=10 * SECOND).claim_second(14 * SECOND - 1) == [
        "a wave before its time"
    ]


async def test_a_wave_soaks_from_the_end_that_the_worker_reports() -> None:
    scene = CartScene(ended_at=10 * SECOND)

    scene.witness.reported("r_first", 9 * SECOND)  # its clock is slow

    assert scene.claim_second(13 * SECOND) == []


async def test_a_loop_that_fails_breaks_a_promise() -> None:
    scene = Scene()

    async def fail() -> None:
        raise Conflict("the store has it already")

    staff = Staff(runs=cast(RunStore, None), floor=cast(Floor, None), duties=[(fail, 1.0)])
    server = Server("1", scene.clock, scene.surroundings, lambda *_: staff)
    await server.start()

    with pytest.raises(Violation, match="the store has it already"):
        await scene.after(1)
