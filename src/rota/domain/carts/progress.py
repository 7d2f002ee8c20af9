"""How far a cart is, and how long it may still take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a cart goes."""

    item: timedelta | None  # how long an item is expected to take; None: nothing is known of it
    window: int  # how many may be in flight
    slots: int | None = None  # how many the workers have room for; None: not known
    wait: timedelta = timedelta(0)  # between two waves

    @property
    def width(self) -> int:
        """How many items really go at once."""
        return self.window if self.slots is None else min(self.window, self.slots)


def eta(pace: Pace, left_in_waves: Iterable[int]) -> timedelta | None:
    """How long the items that are left will take, wave by wave; None: nobody can tell.

    What is in flight counts as left. A person's approval, checks and calendars take no time here.
    """
    waves = [left for left in left_in_waves if left > 0]
    if not waves:
        return timedelta(0)
    if pace.item is None or pace.width < 1:
        return None
    rounds = sum(-(-left // pace.width) for left in waves)
    return pace.item * rounds + pace.wait * (len(waves) - 1)
