"""Worker: the real tracking of its attempts, and the protocol of a real worker's session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from rota.domain.lease import guard_margin, renewal_interval
from rota.domain.resources import SLOTS, UNIT, Vector
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.ports.executor import Completions
from rota.ports.work import (
    BeatAnswer,
    Dispatch,
    Fence,
    Hello,
    Order,
    Outcome,
    ReportAnswer,
    Start,
    StartAnswer,
    Welcome,
)
from rota.worker.attempts import Attempts
from rota.worker.ends import Sending
from rota.worker.spool import OutputSpool
from testkit.universes.machine import Machine
from testkit.universes.network import Connection
from testkit.universes.nodes import Node
from testkit.universes.server import Server
from testkit.universes.surroundings import Surroundings

_ANNOUNCE_SECONDS = 0.2  # as long as an attempt runs before it says so
_REPORT_AGAIN = timedelta(seconds=2)
_NOWHERE = Path("nowhere")  # nothing is printed


class Worker(Node):
    """Worker that is restarted after each crash."""

    def __init__(
        self,
        machine: Machine,
        offers: Vector,
        servers: Sequence[Server],
        surroundings: Surroundings,
    ) -> None:
        super().__init__(surroundings.timeline, machine.clock)
        self.name = machine.name
        self._machine = machine
        self._offers = offers
        self._network = surroundings.network
        self._servers = servers
        self._random = surroundings.random
        self._session = ""  # the latest one
        self._stream = 0  # of it
        self._connection: Connection | None = None
        self._is_registered = False  # by way of that connection
        self._is_reporting = False
        machine.on_end = self._ended
        machine.on_kill = self.crash

    # --- lives

    async def start(self) -> None:
        """Start; it reports the previous session if it knows it: none of its processes is left."""
        self.begin_life()
        self._attempts = Attempts(self.clock, OutputSpool(_NOWHERE))
        self._attempts.serve_with({JobType.SHELL: self._machine})
        self._hello = Hello(
            worker=self.name,
            pool="default",
            slots=self._offers[SLOTS] // UNIT,
            resources={name: n for name, n in self._offers.items() if name != SLOTS},
            succeeds=self._session if self._random.random() < 0.5 else "",
        )
        await self._connect()

    async def crash(self) -> None:
        """Crash; its guardian ends all processes with it, and it is restarted some time later."""
        if not self.is_up:
            return
        self.end_life()
        self._machine.kill()
        if self._connection is not None:
            self._network.cut(self._connection)
        self._connection = None
        self.timeline.after(self._random.choice((0.1, 1, 8)), self.start)

    # --- connecting

    async def _connect(self) -> None:
        server = self._random.choice(self._servers)
        connection = Connection(self, server, self._receive, self._broken, server.gone)
        self._connection, self._is_registered, self._is_reporting = connection, False, False
        server.accept(connection)
        ask = partial(server.register, connection, self._hello)
        self._network.request(
            connection, ask, partial(self._welcomed, connection, self.clock.monotonic())
        )

    async def _broken(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self.later(self._random.uniform(0.1, 1.0), self._connect)

    async def _welcomed(self, connection: Connection, sent_at: float, welcome: Welcome) -> None:
        if self._hello.resumes not in ("", welcome.session):
            await self.crash()  # the session ended while it was away
            return
        self._lease = timedelta(seconds=welcome.lease_seconds)
        self._session, self._stream = welcome.session, welcome.stream
        self._attempts.begin_stream()
        self._hello = msgspec.structs.replace(self._hello, resumes=welcome.session, succeeds="")
        self._attempts.learn_time(welcome.store_now, self.clock.monotonic())
        self._extend(sent_at)
        self._is_registered = True
        await self._beat(connection)
        if unpermitted := self._attempts.unpermitted():
            self._ask_permit(unpermitted)
        self._report()

    def _extend(self, sent_at: float) -> None:
        self._machine.prolong(sent_at + (self._lease - guard_margin(self._lease)).total_seconds())

    @property
    def _link(self) -> Connection | None:
        """Return the connection; None while it connects."""
        return self._connection if self._is_registered else None

    # --- the lease

    async def _beat(self, connection: Connection) -> None:
        if self._connection is connection:
            beat = self._attempts.beat(self._stream)
            ask = partial(self._server(connection).beat, connection, beat)
            hear = partial(self._renewed, connection, self.clock.monotonic())
            self._network.request(connection, ask, hear, may_double=True)

    async def _renewed(self, connection: Connection, sent_at: float, answer: BeatAnswer) -> None:
        if not answer.alive:
            await self.crash()
            return
        self._extend(sent_at)
        self._attempts.learn_time(answer.store_now, self.clock.monotonic())
        self._attempts.cancel(answer.cancel)
        self._attempts.cancel(answer.unknown)
        self._report()  # ends that were put off meanwhile
        next_at = sent_at + renewal_interval(self._lease).total_seconds()
        pause = max(next_at - self.clock.monotonic(), 0.0)
        self.later(pause, partial(self._beat, connection))

    # --- attempts

    async def _receive(self, order: Order) -> None:
        if not isinstance(order, Dispatch):
            return
        free, guarded = self._attempts.accept(order)
        self._attempts.begin(free)
        if free:
            self.later(_ANNOUNCE_SECONDS * 1.5, self._announce)
        if guarded:
            self._ask_permit([fence for held in guarded for fence in held.job.fences])

    def _ask_permit(self, fences: Sequence[Fence]) -> None:
        if (connection := self._link) is None:
            return
        now = self._attempts.store_micros()
        starts = [Start(fence.run, fence.number, now) for fence in fences]
        ask = partial(self._server(connection).permit, connection, starts)
        self._network.request(connection, ask, self._permitted, may_double=True)

    async def _permitted(self, answer: StartAnswer) -> None:
        self._attempts.permitted(answer.granted)
        self._attempts.withdraw(answer.cancelled)
        self._attempts.forget(answer.refused)
        self._report()

    async def _announce(self) -> None:
        starts = self._attempts.starts_to_report(_ANNOUNCE_SECONDS)
        if starts and (connection := self._link) is not None:
            ask = partial(self._server(connection).permit, connection, starts)
            self._network.request(connection, ask, self._announced, may_double=True)

    async def _announced(self, answer: StartAnswer) -> None:
        self._attempts.mark_announced(answer.granted)
        self._attempts.cancel(answer.cancelled)

    def _ended(self, fence: Fence, result: AttemptResult) -> None:
        """End a process; a frozen worker is notified later."""
        self.timeline.at(
            self.timeline.now, self.own(partial(self._note_end, fence, result)), in_turn=True
        )

    async def _note_end(self, fence: Fence, result: AttemptResult) -> None:
        held, now = self._attempts.held.get(fence), self._attempts.store_micros()
        started_at = held.started_at if held else now
        if result is AttemptResult.COMPLETED:
            self._attempts.completed(Completions([fence], [started_at], [now], [0]))
        else:
            self._attempts.ended([Outcome(fence.run, fence.number, result, started_at, now)])
        self._report()

    def _report(self) -> None:
        if (connection := self._link) is None or self._is_reporting:
            return
        sending = self._attempts.next_report()
        if sending is None:
            return
        self._is_reporting = True
        ask = partial(self._server(connection).report, connection, sending.report)
        self._network.request(connection, ask, partial(self._reported, sending), may_double=True)

    async def _reported(self, sending: Sending, answer: ReportAnswer) -> None:
        self._is_reporting = False
        self._machine.refused(answer.refused)
        self._attempts.answered(sending, answer, _REPORT_AGAIN)
        self._report()

    def _server(self, connection: Connection) -> Server:
        return next(server for server in self._servers if server is connection.server)
