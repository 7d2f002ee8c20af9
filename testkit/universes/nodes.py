"""Common parts of servers and workers: a clock of their own, and a crash at any moment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta

from rota.domain.ids import instant
from rota.ports.clock import Alarm
from testkit.universes.timeline import SECOND, Action, Timeline


class _SilentAlarm:
    def set(self, seconds: float) -> None:
        """Do nothing: the rounds of a universe come by themselves."""


class NodeClock:
    """Implements `rota.ports.clock.AlarmClock`.

    It runs too fast or too slow, and shows any time.
    """

    def __init__(self, timeline: Timeline, rate: float, offset: float) -> None:
        self._timeline = timeline
        self._rate = rate  # seconds that it counts in a true one
        self._offset = offset  # seconds that it showed when the universe began

    def now(self) -> datetime:
        return instant(self._timeline.began_at + int(self.monotonic() * SECOND))

    def monotonic(self) -> float:
        return self._offset + self._timeline.elapsed * self._rate

    async def sleep(self, duration: timedelta) -> None:
        """Do nothing: nothing else happens in the middle of a step."""

    def alarm(self, ring: Callable[[], None]) -> AbstractContextManager[Alarm]:
        return nullcontext(_SilentAlarm())

    def lasting(self, seconds: float) -> float:
        """Return the true time until the clock has counted so many seconds."""
        return seconds / self._rate

    def until(self, monotonic: float) -> float:
        """Return the true time until the clock shows a time."""
        return self.lasting(monotonic - self.monotonic())


class Node:
    """Process: its pending actions are dropped when it dies, and wait while it is frozen."""

    def __init__(self, timeline: Timeline, clock: NodeClock) -> None:
        self.timeline = timeline
        self.clock = clock
        self.is_up = False
        self.life = 0  # grows with each start
        self._frozen_until = 0

    def begin_life(self) -> None:
        self.is_up = True
        self.life += 1
        self._frozen_until = 0

    def end_life(self) -> None:
        self.is_up = False

    def freeze(self, seconds: float) -> None:
        """Suspend it for so long; then all pending actions happen, in that order.

        To keep the order, what is frozen already is not frozen for longer.
        """
        if self.timeline.now >= self._frozen_until:
            self._frozen_until = self.timeline.now + int(seconds * SECOND)

    def own(self, action: Action) -> Action:
        """Bind an action to this process."""
        life = self.life

        async def act() -> None:
            if not self.is_up or self.life != life:
                return
            if self.timeline.now < self._frozen_until:
                self.timeline.at(self._frozen_until, act, in_turn=True)
            else:
                await action()

        return act

    def later(self, seconds: float, action: Action) -> None:
        """Schedule an action for when its own clock has counted so many seconds."""
        self.timeline.after(self.clock.lasting(seconds), self.own(action))
