"""Watching what happens: a run's output over all its attempts, and the history of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.run import Run
from rota.domain.states import RunState, is_final
from rota.operations.engine import Engine
from rota.operations.output import OutputWindow, follow
from rota.operations.runs import find_run
from rota.ports.queue import EVENTS, WATCHED
from rota.ports.records import Event

_SLOW_POLL = timedelta(seconds=5)
_EVENT_BATCH = 500


@dataclass(frozen=True, slots=True)
class AttemptBegan:
    number: int


@dataclass(frozen=True, slots=True)
class AttemptPrinted:
    number: int
    window: OutputWindow  # empty: nothing new, a sign of life


Followed = AttemptBegan | AttemptPrinted | Run | None  # Run: it has ended; None: a sign of life


async def follow_run(
    engine: Engine, run: Run, attempt: int, from_line: int = 0
) -> AsyncGenerator[Followed, None]:
    """The output from an attempt on, through all later ones, until the run is final or unknown."""
    listener = engine.queue.listen(EVENTS)
    try:
        while True:
            if attempt <= run.attempt:
                engine.queue.announce(WATCHED, run.id)
                async with aclosing(follow(engine, run.id, attempt, from_line)) as windows:
                    async for window in windows:
                        yield AttemptPrinted(attempt, window)
                attempt, from_line = attempt + 1, 0
            elif is_final(run.state) or run.state is RunState.UNKNOWN:
                yield run
                return
            else:
                await listener.wait(_SLOW_POLL)
                yield None
            run = await find_run(engine, run.id, project=run.project)
            if run.attempt >= attempt:
                yield AttemptBegan(attempt)
    finally:
        listener.close()


async def follow_events(engine: Engine, after: int | None) -> AsyncGenerator[list[Event], None]:
    """Events past a position in order, for ever; without one, those to come.

    An empty list comes every few seconds of silence, as a sign of life.
    """
    listener = engine.queue.listen(EVENTS)
    try:
        position = (await engine.store.counts()).last_event if after is None else after
        while True:
            events = await engine.store.events(position, _EVENT_BATCH)
            yield events
            if events:
                position = events[-1].seq
            else:
                await listener.wait(_SLOW_POLL)
    finally:
        listener.close()
