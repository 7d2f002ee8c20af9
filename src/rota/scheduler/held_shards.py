"""The shards of this server, as its own clock lets it believe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rota.domain.ids import ServerId
from rota.domain.shards import LEADING_SHARD
from rota.ports.clock import Clock
from rota.ports.records import Ownership


class HeldShards:
    """What the scheduler's loops may work on.

    Empty once the lease may be over by this node's clock, whether or not anybody said so: a server
    that was stopped and goes on finds itself without shards, not with those of another.
    """

    def __init__(self, server: ServerId, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._epochs: Mapping[int, int] = {}
        self._until = 0.0
        self._to_tell: list[Callable[[], None]] = []

    @property
    def epochs(self) -> Mapping[int, int]:
        """The epoch of each shard, by number."""
        return self._epochs if self.is_current else {}

    @property
    def is_current(self) -> bool:
        """Whether the server's lease surely lasts, with shards or without."""
        return self._clock.monotonic() < self._until

    @property
    def is_leading(self) -> bool:
        """Whether the duties that are not divided among servers are this one's.

        Two at once are harmless, as all they write is guarded; a short time without is lateness.
        """
        return LEADING_SHARD in self.epochs

    def ownership(self) -> Ownership:
        return Ownership(self._server, self.epochs)

    def on_gain(self, tell: Callable[[], None]) -> None:
        """Be told whenever shards have come, or have come back."""
        self._to_tell.append(tell)

    def hold(self, epochs: Mapping[int, int], until: float) -> None:
        """Hold exactly these, until a monotonic time."""
        known = self.epochs
        has_gained = any(known.get(number) != epoch for number, epoch in epochs.items())
        self._epochs, self._until = dict(epochs), until
        if has_gained:
            for tell in self._to_tell:
                tell()

    def lose(self, ownership: Ownership, numbers: Collection[int]) -> None:
        """The store said that these are not owned as was thought; what came since stays."""
        stale = {(number, ownership.epochs.get(number)) for number in numbers}
        self._epochs = dict(held for held in self._epochs.items() if held not in stale)
