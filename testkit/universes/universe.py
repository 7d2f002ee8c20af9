"""One universe: drawn from a seed, broken for a while, mended, and judged.

Nothing in it depends on the machine that it runs on: there is one task, time moves from event to
event, and every choice and every id comes from the seed.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from rota.domain.ids import RunId
from rota.domain.states import RunState
from testkit.universes.cart_people import CartPeople
from testkit.universes.catalogue import catalogue
from testkit.universes.evidence import Violation, Witness
from testkit.universes.machine import Machine
from testkit.universes.network import Network
from testkit.universes.nodes import Node, NodeClock
from testkit.universes.people import People
from testkit.universes.plan import CHAOS_SECONDS, Plan
from testkit.universes.rest import is_at_rest, judge_finals, judge_rest, unfinished, unknown_among
from testkit.universes.server import Server
from testkit.universes.surroundings import Surroundings
from testkit.universes.timeline import SECOND, Timeline
from testkit.universes.worker import Worker
from testkit.universes.world import World, empty_database, new_world

_REST_WITHIN = 600.0  # seconds after everything was mended
_LOOK_SECONDS = 5.0


def explore(seeds: Iterable[int]) -> Counter[str]:
    """Run universes one after another; return what happened in them, and how often.

    Raise `Violation` at the first broken promise; a note has the command to repeat it.
    """

    async def explore_all() -> Counter[str]:
        tally: Counter[str] = Counter()
        with empty_database() as database:
            for seed in seeds:
                tally += (await _pass_by(seed, database)).tally
        return tally

    return asyncio.run(explore_all())


def visit(seed: int) -> Witness:
    """Run one universe; return its witness."""
    with empty_database() as database:
        return asyncio.run(_pass_by(seed, database))


async def _pass_by(seed: int, database: sqlite3.Connection) -> Witness:
    random = Random(seed)  # noqa: S311 (chosen, not secret)
    plan, timeline = Plan.drawn(random), Timeline(random)
    try:
        with _ids_from(random):
            async with new_world(database, timeline, plan) as world:
                universe = Universe(plan, world, timeline, random)
                await universe.run()
    except (Exception, Violation) as error:
        error.add_note(f"The same again: python tools/universe.py {seed}")
        raise
    return universe.witness


@contextmanager
def _ids_from(random: Random) -> Iterator[None]:
    """Make ids of sessions and servers from the seed, as rows are found in their order."""
    with patch.object(secrets, "randbits", random.getrandbits):
        yield


class Universe:
    """Servers, workers and people in one world, from the first fault to the last judgement."""

    def __init__(self, plan: Plan, world: World, timeline: Timeline, random: Random) -> None:
        self._plan = plan
        self._world = world
        self._timeline = timeline
        self._random = random
        self._is_over = False
        self._finals: dict[RunId, RunState] = {}  # as they were first seen
        self.witness = Witness(timeline, catalogue(), has_quota=plan.has_quota)
        self._network = Network(timeline, random, plan.weather, self.witness)
        self._surroundings = Surroundings(timeline, self._network, self.witness, random)
        self._people = People(world, self._surroundings)
        self._cart_people = CartPeople(world, self._surroundings)
        self._servers = [self._server(number) for number in range(plan.servers)]
        self._workers = [self._worker(number) for number in range(len(plan.workers))]

    async def run(self) -> None:
        for server in self._servers:
            await server.start()
        for worker in self._workers:
            await worker.start()
        self._foretell()
        await self._pass(CHAOS_SECONDS)
        self._network.calm_down()
        self._timeline.after(0, self._look)
        await self._pass(_REST_WITHIN)
        if not self._is_over:
            left = await unfinished(self._world, await self._world.all_runs())
            self.witness.complain("it does not come to rest", left)
        await judge_rest(self._world, self.witness, self._people.promised, self._people.resolved)

    async def _pass(self, seconds: float) -> None:
        until = self._timeline.now + int(seconds * SECOND)
        await self._timeline.run(until)

    # --- who is there

    def _clock(self, number: int) -> NodeClock:
        rate, offset = 1 + self._plan.drifts[number], self._random.uniform(1, 1e6)
        return NodeClock(self._timeline, rate, offset)

    def _server(self, number: int) -> Server:
        return Server(str(number), self._clock(number), self._surroundings, self._world.employ)

    def _worker(self, number: int) -> Worker:
        name, offers = f"worker-{number}", self._plan.workers[number]
        clock = self._clock(self._plan.servers + number)
        self.witness.capacities[name] = offers
        machine = Machine(name, clock, self._surroundings, self._plan.failing)
        return Worker(machine, offers, self._servers, self._surroundings)

    # --- what comes

    def _foretell(self) -> None:
        coming = [self._people.submit] * self._plan.submissions
        coming += [self._people.cancel] * self._plan.cancels
        coming += [self._people.hold, self._people.let_go] * self._plan.holds
        coming += [self._cart_people.submit, *[self._cart_people.steer] * 2] * self._plan.carts
        coming += [self._break_something] * self._plan.faults
        for action in coming:
            self._timeline.after(self._random.uniform(0, CHAOS_SECONDS), action)

    async def _break_something(self) -> None:
        nodes: list[Server | Worker] = [*self._servers, *self._workers]
        node = self._random.choice(nodes)
        if not node.is_up:
            return
        if self._random.random() < 0.5:
            self.witness.note(f"{_kind(node)} frozen", node.name)
            node.freeze(self._random.uniform(0.1, 2) * self._plan.lease_seconds)
            return
        self.witness.note(f"{_kind(node)} crash", node.name)
        await node.crash()
        if isinstance(node, Server):
            self._timeline.after(self._random.choice((0.1, 2, 10)), node.start)

    async def _look(self) -> None:
        """Check whether all has come to rest; a person resolves what only a person can."""
        runs = await self._world.all_runs()
        await self._people.resolve(unknown_among(runs))
        await self._people.let_all_go()
        await self._cart_people.resume_all()
        judge_finals(self.witness, self._finals, runs)
        is_mended = all(node.is_up for node in (*self._servers, *self._workers))
        self._is_over = is_mended and await is_at_rest(self._world, self.witness, runs)
        if self._is_over:
            self._timeline.stop()
        self._timeline.after(_LOOK_SECONDS, self._look)


def _kind(node: Node) -> str:
    return type(node).__name__.lower()
