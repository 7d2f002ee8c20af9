"""Server: the real dispatcher and the loops that its world gives it, one step at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from rota.domain.errors import NotFound, RotaError, StaleStream
from rota.domain.ids import SessionId
from rota.domain.run import AttemptResult
from rota.ports.clock import AlarmClock
from rota.ports.store import RunStore
from rota.ports.work import (
    Beat,
    BeatAnswer,
    Dispatch,
    Hello,
    Order,
    Report,
    ReportAnswer,
    Start,
    StartAnswer,
    Welcome,
)
from rota.server.dispatcher.floor import Floor
from testkit.universes.network import Connection
from testkit.universes.nodes import Node, NodeClock
from testkit.universes.surroundings import Surroundings

_FEED_SECONDS = 2.5


Duty: TypeAlias = Callable[[], Awaitable[object]]  # one round of a loop of a server


@dataclass(frozen=True, slots=True)
class Staff:
    """Parts of one process of a server."""

    runs: RunStore
    floor: Floor
    duties: Sequence[tuple[Duty, float]]  # each with the seconds between two rounds


Employ: TypeAlias = Callable[[str, AlarmClock], Staff]


class Server(Node):
    """Server that loses its memory when it dies: its next process has another name."""

    def __init__(
        self, name: str, clock: NodeClock, surroundings: Surroundings, employ: Employ
    ) -> None:
        super().__init__(surroundings.timeline, clock)
        self.name = name
        self._network = surroundings.network
        self._witness = surroundings.witness
        self._random = surroundings.random
        self._employ = employ
        self._open: list[Connection] = []  # all that were made to this life
        self._connections: dict[str, Connection] = {}  # the latest by session

    async def start(self) -> None:
        self.begin_life()
        self._open, self._connections = [], {}
        self._staff = self._employ(f"s_{self.name}_{self.life}", self.clock)
        for duty, seconds in self._staff.duties:
            self._repeat(duty, seconds)
        self.later(self._random.uniform(0, _FEED_SECONDS), self._keep_feeding)

    async def crash(self) -> None:
        """Crash; all its connections break."""
        self.end_life()
        for connection in self._open:
            self._network.cut(connection)

    @property
    def floor(self) -> Floor:
        return self._staff.floor

    def wake(self) -> None:
        """Wake it: there is work."""
        self.later(self._random.uniform(0.001, 0.02), self._feed)

    # --- what workers ask

    def accept(self, connection: Connection) -> None:
        """Accept a worker's connection."""
        self._open.append(connection)
        if not self.is_up:
            self._network.cut(connection)

    async def register(self, connection: Connection, hello: Hello) -> Welcome:
        welcome = await self.floor.register(hello)
        connection.session, connection.stream = welcome.session, welcome.stream
        self._connections[welcome.session] = connection
        self.wake()
        return welcome

    async def beat(self, connection: Connection, beat: Beat) -> BeatAnswer:
        return await self.floor.beat(connection.session, beat)

    async def permit(self, connection: Connection, starts: Sequence[Start]) -> StartAnswer:
        return await self.floor.start(connection.session, starts)

    async def report(self, connection: Connection, report: Report) -> ReportAnswer:
        answer = await self.floor.report(connection.session, report)
        self._witness.reported(report, answer)
        await self._send_orders(connection)
        bad = tuple(each for each in report.outcomes if each.result != AttemptResult.COMPLETED)
        if bad:
            again = partial(self._hear_again, SessionId(connection.session), Report(outcomes=bad))
            self._network.echo(self.own(again))
        return answer

    async def _hear_again(self, session: SessionId, report: Report) -> None:
        """Repeat an old report of failures: by now other attempts may run."""
        finished = await self._staff.runs.finish(session, report)
        self._witness.reported(report, ReportAnswer(finished.refused, finished.again))

    async def gone(self, connection: Connection) -> None:
        await self.floor.disconnected(connection.session, connection.stream)
        if self._connections.get(connection.session) is connection:
            del self._connections[connection.session]

    # --- what it does unasked

    def _repeat(self, duty: Duty, seconds: float) -> None:
        async def act() -> None:
            await self._do(duty)
            self.later(seconds * self._random.uniform(0.75, 1.25), act)

        self.later(self._random.uniform(0, seconds), act)

    async def _do(self, duty: Duty) -> None:
        """Run a loop once; any error is a bug, since the store never fails here."""
        try:
            await duty()
        except RotaError as error:
            self._witness.complain(f"a loop of server {self.name} failed", repr(error))

    async def _keep_feeding(self) -> None:
        await self._feed()
        self.later(_FEED_SECONDS, self._keep_feeding)

    async def _feed(self) -> None:
        for session, connection in list(self._connections.items()):
            try:
                await self.floor.claim_for(session)
            except (NotFound, StaleStream):
                await self.gone(connection)
            else:
                await self._send_orders(connection)

    async def _send_orders(self, connection: Connection) -> None:
        while (order := self._next_order(connection)) is not None:
            if isinstance(order, Dispatch):
                for work in order.batch.works():
                    self._witness.claimed(work)
            self._network.order(connection, order)

    def _next_order(self, connection: Connection) -> Order | None:
        """Return the next order; None: there is none yet, so that it would have to be awaited."""
        asked = self.floor.next_order(connection.session, connection.stream)
        return _at_once(asked)


def _at_once(asked: Coroutine[Any, Any, Order]) -> Order | None:
    try:
        asked.send(None)
    except StopIteration as stop:
        order: Order = stop.value
        return order
    except NotFound:
        return None
    asked.close()
    return None
