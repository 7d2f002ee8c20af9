"""What servers and workers have in common: a clock of their own, and an end at any moment."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.domain.ids import instant
from testkit.universes.timeline import SECOND, Action, Timeline


class NodeClock:
    """Implements `rota.ports.clock.Clock`. It runs too fast or too slow, and shows any time."""

    def __init__(self, timeline: Timeline, rate: float, offset: float) -> None:
        self._timeline = timeline
        self._rate = rate  # seconds that it counts in a true one
        self._offset = offset  # seconds that it showed when the universe began

    def now(self) -> datetime:
        return instant(self._timeline.began_at + int(self.monotonic() * SECOND))

    def monotonic(self) -> float:
        return self._offset + self._timeline.elapsed * self._rate

    async def sleep(self, duration: timedelta) -> None:
        """Nothing else happens in the middle of a step."""

    def lasting(self, seconds: float) -> float:
        """How long it truly takes until the clock has counted so many seconds."""
        return seconds / self._rate

    def until(self, monotonic: float) -> float:
        """The same until it shows a time."""
        return self.lasting(monotonic - self.monotonic())


class Node:
    """A process: what it is going to do is forgotten when it dies, and waits while it is frozen."""

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
        """Nothing of it happens for so long; then all that was to happen meanwhile, in that order.

        To keep the order, what is frozen already is not frozen for longer.
        """
        if self.timeline.now >= self._frozen_until:
            self._frozen_until = self.timeline.now + int(seconds * SECOND)

    def own(self, action: Action) -> Action:
        """The action as a part of this life."""
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
        """Do something once its own clock has counted so many seconds."""
        self.timeline.after(self.clock.lasting(seconds), self.own(action))
