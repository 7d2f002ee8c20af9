"""Loops for work of other systems: it begins, is announced, and ends when nobody reports."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from random import uniform

from rota.domain.spec import EXTERNAL_POOL
from rota.operations import external
from rota.operations.engine import Engine
from rota.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class ExternalConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    forget_interval: timedelta = timedelta(hours=1)  # how often old tokens are deleted
    forget_batch: int = 1_000


class ExternalKeeper:
    """Begins attempts at work of other systems, and ends those that are silent or cancelled.

    Every server does it: attempts are nobody's, and which are overdue is in the store. Two at once
    are harmless, as a claim gives each run once and an end locks it.
    """

    name = "external-keeper"

    def __init__(self, engine: Engine, clock: Clock, config: ExternalConfig | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self._config = config or ExternalConfig()
        self._forgets_at = 0.0  # monotonic

    async def run(self) -> None:
        taker = self._engine.queue.takes(EXTERNAL_POOL)
        try:
            while True:
                await self.run_once()
                pause = self._config.interval * uniform(0.75, 1.25)  # noqa: S311 - no secret
                if (ticket := await taker.take(pause)) is not None:
                    taker.done(ticket)  # what it names is begun, or found by the next look
        finally:
            taker.close()

    async def run_once(self) -> int:
        """Do what is due; return how many attempts began or ended."""
        due = await self._engine.store.external_due()
        done = await external.end_silent(self._engine) if due.silent else 0
        done += await external.begin_waiting(self._engine) if due.waiting else 0
        await self._forget()
        return done

    async def _forget(self) -> None:
        now, limit = self._clock.monotonic(), self._config.forget_batch
        if now < self._forgets_at:
            return
        if await self._engine.store.forget_report_tokens(limit) < limit:
            self._forgets_at = now + self._config.forget_interval.total_seconds()


_AT_ONCE = 100  # messages under way on one server


class Announcer:
    """Tells other systems of attempts, and of those that were cancelled, until they answer.

    A system that takes its time keeps no message to another one back.
    """

    name = "announcer"

    def __init__(self, engine: Engine, clock: Clock, config: ExternalConfig | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self._config = config or ExternalConfig()
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            while True:
                if not await self.run_once():
                    pause = self._config.interval * uniform(0.75, 1.25)  # noqa: S311 - no secret
                    await self._clock.sleep(pause)
        except asyncio.CancelledError:  # not if the store is away: what is under way goes on
            for task in self._sending:
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)
            raise

    async def run_once(self) -> int:
        """Begin to send what is due; return how many messages."""
        room = _AT_ONCE - len(self._sending)
        if not room or not (await self._engine.store.external_due()).announcements:
            return 0
        due = await external.announce_due(self._engine, room)
        for sending in due:
            task = asyncio.create_task(sending)
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return len(due)

    async def sent(self) -> None:
        """Return once each message under way was answered, or was sent in vain."""
        await asyncio.gather(*self._sending)
