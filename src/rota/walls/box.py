"""Life of the container of one attempt: noted, created, started, killed, removed.

It is noted in the journal and with the keeper before the engine hears of it, and neither forgets it
before the engine has said that it is gone.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rota.ports.clock import Clock
from rota.ports.executor import Keeper
from rota.walls.container import PROGRAMS_AT
from rota.walls.engine import ContainerEngine, EngineAway, EngineRefused, read_output
from rota.walls.leftovers import Sweeper
from rota.walls.network import WayOut
from rota.walls.usage import Meter

OUT_OF_MEMORY = "oom"
_AGAIN = timedelta(milliseconds=500)
_LOOK_AGAIN = timedelta(milliseconds=20)
_ENDS_WITHIN = 10.0  # seconds
_ENDED = (404, 409)  # what engines say of a container that is not there, or does not run


Connect = Callable[[str], Awaitable[WayOut]]  # by the name of a container that was started


@dataclass(frozen=True, slots=True)
class Command:
    """Command that runs in a container."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: str


class LeaseEnded(Exception):
    """The worker's lease is over, or so nearly that nothing may begin."""


class Box:
    """Container of an attempt."""

    def __init__(
        self, name: str, engine: ContainerEngine, keeper: Keeper, sweeper: Sweeper, user: str = ""
    ) -> None:
        self.name = name
        self.engine = engine
        self.meter = Meter(engine, name, "")
        self._keeper = keeper
        self._sweeper = sweeper
        self._user = user
        self._is_noted = False
        self._creating: asyncio.Task[str] | None = None
        self._was_used = False
        self._killing: asyncio.Task[None] | None = None
        self._way_out: WayOut | None = None

    async def open(
        self,
        config: Mapping[str, Any],
        *,
        may_start: Callable[[], bool],
        connect: Connect | None,
    ) -> None:
        """Create and start it; nothing of the job runs in it yet.

        `may_start` says whether the worker's lease has time left.
        """
        self._is_noted = True
        self._sweeper.journal.note(self.name, self.engine.socket)
        await self._keeper.keep(self.engine.socket, self.name)
        # Never cut off half-way: what the engine makes of it later nobody would look for.
        creating = asyncio.get_running_loop().create_task(self.engine.create(self.name, config))
        self._creating = creating
        container_id = await asyncio.shield(creating)
        if not may_start():
            raise LeaseEnded("the worker's lease was over before its container could start")
        await self.engine.start(self.name)
        state = await self.engine.state(self.name)
        if state is None or not state.is_running:
            reason = "it is not there" if state is None else state.error or "it ended at once"
            raise EngineRefused(f"the container was started, but {reason}")
        await self._keeper.started(self.name, state.pid)
        self.meter = Meter(self.engine, self.name, container_id)
        if connect is not None:
            self._way_out = await connect(self.name)

    async def network_ended(self) -> str:
        """Wait until its way out is closed, if it has one at all; return why."""
        way_out = self._way_out
        if way_out is None:
            await asyncio.Event().wait()
            return ""
        await asyncio.shield(way_out.ended)
        return way_out.obituary()

    async def make_room(self) -> None:
        """Kill what an earlier step left running."""
        if self._was_used:
            await self._execute("kill")
        self._was_used = True

    async def new_process(self, command: Command) -> str:
        """Make a process of the job, which does not run yet; return the engine's id of it."""
        return await self.engine.new_process(
            self.name, command.argv, user=self._user, env=command.env, cwd=command.folder
        )

    async def terminate(self) -> None:
        """Send TERM to all processes of the job."""
        await self._execute("term")

    async def _execute(self, program: str) -> None:
        process = await self.new_process(Command((f"{PROGRAMS_AT}/{program}",), {}, "/"))
        async with self.engine.running(process) as output:
            while await read_output(output) is not None:
                pass
        if code := (await self.engine.process(process)).exit_code:
            raise EngineRefused(f"the processes of the container cannot be reached (exit {code})")

    def kill(self) -> None:
        """Kill all that is in it, at once, and the container with it."""
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._kill(self._sweeper.clock))

    async def _kill(self, clock: Clock) -> None:
        """Ask until the engine has heard; a container that is not there needs no more."""
        while True:
            try:
                await self.engine.signal(self.name, signal.SIGKILL)
            except EngineRefused as error:
                if error.status in _ENDED:
                    return
                await clock.sleep(_AGAIN)
            except EngineAway:
                await clock.sleep(_AGAIN)
            else:
                return

    @property
    def is_killed(self) -> bool:
        """Return whether somebody asked for its end."""
        return self._killing is not None

    async def ended_out_of_memory(self) -> bool:
        """Kill it, and return whether its engine says that memory was short."""
        self.kill()
        async with asyncio.timeout(_ENDS_WITHIN):
            while True:
                state = await self.engine.state(self.name)
                if state is None or not state.is_running:
                    return state is not None and state.was_out_of_memory
                await self._sweeper.clock.sleep(_LOOK_AGAIN)

    async def is_running(self) -> bool:
        state = await self.engine.state(self.name)
        return state is not None and state.is_running

    async def remove(self, on_trouble: Callable[[str], None]) -> None:
        """Remove all of it; return once the engine has confirmed that it is gone."""
        if self._killing is not None:
            self._killing.cancel()
        if not self._is_noted:
            return
        is_unsure = await self._may_come_later()
        await self._sweeper.remove(self.engine, self.name, on_trouble, is_unsure=is_unsure)
        if self._way_out is not None:
            await self._way_out.close()
        await self._keeper.release(self.name)

    async def _may_come_later(self) -> bool:
        """Wait for the answer to its creation; return whether there was none."""
        if self._creating is None:
            return False
        try:
            await asyncio.wait({self._creating})
            self._creating.result()
        except EngineRefused:
            return False
        except EngineAway:
            return True
        return False
