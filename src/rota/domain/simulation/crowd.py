"""Who waits for the same thing, and when somebody did."""

from __future__ import annotations

from dataclasses import dataclass

NOTICED_SECONDS = 1.0  # shorter stretches of waiting are nobody's concern
JOINED_SECONDS = 60.0  # stretches with less between them are one


@dataclass(frozen=True, slots=True)
class Saturation:
    """A stretch in which runs waited for the same thing."""

    what: str  # `pool POOL`, or a key
    begins_at: float
    ends_at: float
    most_waiting: int


class Crowd:
    """Those who wait for one thing."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waiting = 0
        self._since = 0.0
        self._most = 0
        self._stretches: list[Saturation] = []

    def come(self, at: float) -> None:
        if not self._waiting:
            self._since, self._most = at, 0
        self._waiting += 1
        self._most = max(self._most, self._waiting)

    def go(self, at: float) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._close(at)

    def stretches(self, until: float) -> list[Saturation]:
        """Those that were worth noticing; the last one ends here if somebody still waits."""
        if self._waiting:
            self._close(until)
            self._since = until
        return self._stretches

    def _close(self, at: float) -> None:
        if at - self._since < NOTICED_SECONDS:
            return
        begins_at, most = self._since, self._most
        if self._stretches and begins_at - self._stretches[-1].ends_at < JOINED_SECONDS:
            last = self._stretches.pop()
            begins_at, most = last.begins_at, max(last.most_waiting, most)
        self._stretches.append(Saturation(self._what, begins_at, at, most))
