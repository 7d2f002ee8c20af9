"""Connections that break, stall and repeat messages.

Like a stream of messages: what a server sends arrives in order or not at all, and a lost message
breaks the connection. Both ends notice that later, each in its own time. A request may arrive twice
where the worker may send it twice, and work that was dispatched long ago again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeAlias, TypeVar

from rota.domain.errors import RotaError
from rota.ports.work import Dispatch, Order
from testkit.universes.evidence import Witness
from testkit.universes.nodes import Node
from testkit.universes.plan import CALM, Weather
from testkit.universes.timeline import SECOND, Action, Timeline

A = TypeVar("A")
Ask: TypeAlias = Callable[[], Awaitable[A]]
Hear: TypeAlias = Callable[[A], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Connection:
    """Connection of a worker to a server."""

    worker: Node
    server: Node
    on_order: Hear[Order]  # at the worker
    on_break: Callable[[Connection], Awaitable[None]]  # at the worker
    on_gone: Callable[[Connection], Awaitable[None]]  # at the server
    session: str = ""  # "" until the worker is registered
    stream: int = 0
    is_up: bool = True
    arrived_by: int = 0  # when the latest message to the worker arrives


class Network:
    """All messages between workers and servers, with the same fault rates."""

    def __init__(
        self, timeline: Timeline, random: Random, weather: Weather, witness: Witness
    ) -> None:
        self._timeline = timeline
        self._random = random
        self._weather = weather
        self._witness = witness

    def calm_down(self) -> None:
        self._weather = CALM

    def request(
        self, connection: Connection, ask: Ask[A], hear: Hear[A], *, may_double: bool = False
    ) -> None:
        """Send a request to the server. The answer to a second copy is dropped."""
        if self._is_lost(connection):
            return
        self._to_server(connection, partial(self._answer, connection, ask, hear))
        if may_double and self._chance(self._weather.doubling):
            self._witness.note("doubled request")
            self._to_server(connection, partial(self._answer, connection, ask, _nobody))

    async def _answer(self, connection: Connection, ask: Ask[A], hear: Hear[A]) -> None:
        try:
            answer = await ask()
        except RotaError as error:
            self._witness.note("refused", error.code)
            self.cut(connection)
        else:
            if not self._is_lost(connection):
                self._to_worker(connection, partial(hear, answer))

    def order(self, connection: Connection, order: Order) -> None:
        """Send the worker an order."""
        if self._is_lost(connection):
            return
        self._to_worker(connection, partial(connection.on_order, order))
        if isinstance(order, Dispatch) and self._chance(self._weather.doubling):
            self._witness.note("doubled order")
            again = connection.worker.own(partial(connection.on_order, order))
            later = connection.arrived_by + int(self._random.uniform(0, 9) * SECOND)
            self._timeline.at(later, partial(_arrive, connection, again))

    def echo(self, deliver: Action) -> None:
        """Repeat a message at random, long after: more often than by bad luck."""
        if self._chance(3 * self._weather.doubling):
            self._witness.note("echo")
            self._timeline.after(self._random.uniform(3, 9), deliver)

    def cut(self, connection: Connection) -> None:
        """Break the connection; messages in transit are lost."""
        if not connection.is_up:
            return
        connection.is_up = False
        worker, server = connection.worker, connection.server
        worker.later(self._random.uniform(0.05, 1), partial(connection.on_break, connection))
        server.later(self._random.uniform(0.05, 6), partial(connection.on_gone, connection))

    def _to_server(self, connection: Connection, deliver: Action) -> None:
        arrive = partial(_arrive, connection, connection.server.own(deliver))
        self._timeline.after(self._delay(), arrive)

    def _to_worker(self, connection: Connection, deliver: Action) -> None:
        soonest = self._timeline.now + int(self._delay() * SECOND)
        connection.arrived_by = max(soonest, connection.arrived_by + 1)
        arrive = partial(_arrive, connection, connection.worker.own(deliver))
        self._timeline.at(connection.arrived_by, arrive)

    def _is_lost(self, connection: Connection) -> bool:
        if not connection.is_up:
            return True
        if self._chance(self._weather.loss):
            self._witness.note("lost message")
            self.cut(connection)
        return not connection.is_up

    def _delay(self) -> float:
        if self._chance(self._weather.delay):
            return self._random.uniform(0.1, 5.0)
        return self._random.uniform(0.001, 0.05)

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability


async def _arrive(connection: Connection, deliver: Action) -> None:
    """Deliver a message; at a frozen node it waits until that goes on."""
    if connection.is_up:
        await deliver()


async def _nobody(_: object) -> None:
    """Drop an answer."""
