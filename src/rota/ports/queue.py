"""Wake-ups between the parts of Rota: hints, never the truth."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

# Topics. A payload is a run, session or job id, or empty.
CANCELLED = "cancelled"  # payload: session id that has something to stop
WATCHED = "watched"  # payload: run id whose output somebody begins to follow
EVENTS = "events"  # something was appended to the event history
TIMES = "times"  # something may be due earlier than the scheduler thinks


def work(pool: str) -> str:
    """The topic of a pool that has runs to claim."""
    return f"work.{pool}"


def output(run: str) -> str:
    """The topic of a run that printed something."""
    return f"output.{run}"


class Listener(Protocol):
    """One subscription. Closing it twice is harmless."""

    async def wait(self, timeout: timedelta) -> frozenset[str]:
        """Payloads announced since the last wait; empty when the time passed without any."""
        ...

    def close(self) -> None: ...


class Queue(Protocol):
    """May lose, repeat, delay or reorder anything: every listener also polls, slowly."""

    def announce(self, topic: str, payload: str = "") -> None:
        """Tell whoever listens, soon; never blocks, never fails."""
        ...

    def listen(self, *topics: str) -> Listener: ...

    def is_watched(self, topic: str) -> bool:
        """Whether anybody listens, as far as this node knows."""
        ...

    async def close(self) -> None: ...
