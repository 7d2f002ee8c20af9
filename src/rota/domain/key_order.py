"""Who goes before whom among the runs that want a key, and what is kept for one of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from rota.domain.order import BOOST_SECONDS
from rota.domain.shared_keys import SECOND, Key, KeyState, wanted

Rank: TypeAlias = tuple[int, int]  # see `rank_of`: the lowest goes first
BOOST = round(BOOST_SECONDS * SECOND)  # head start of one step of priority
# So long a run in the queue keeps others from its keys. Whoever finds no worker by then, as its
# pool is empty or full, may have to wait for its keys once more when it does.
PROMISED = 10 * SECOND


def rank_of(priority: int, created_at: int, seq: int) -> Rank:
    """The place of a run among those that want a key; waiting lifts it over who comes later."""
    return created_at - priority * BOOST, seq


@dataclass(frozen=True, slots=True)
class Waiter:
    """A run that waits for a key."""

    rank: Rank
    eligible_at: int | None = None  # when it may go; None: nobody knows


@dataclass(frozen=True, slots=True)
class Waiters:
    """Who waits for a key already."""

    first: Rank
    last_at: int | None = None  # when the last of them may go; None: nobody knows

    @classmethod
    def before(cls, rank: Rank, known: Collection[Waiter]) -> Waiters:
        """Those before whoever comes with this rank, of whom the first and the last are known."""
        times = [each.eligible_at for each in known if each.rank < rank]
        last_at = max((at for at in times if at is not None), default=None)
        return cls(min(each.rank for each in known), last_at)


@dataclass(frozen=True, slots=True)
class Wait:
    """A run waits already: for which key, and since when it waits at all."""

    key: Key
    since: int


@dataclass(frozen=True, slots=True)
class Kept:
    """So much of a key that is kept for a run which could have it, but waits for another one.

    Without it, a run of several keys might find one of them taken whenever another is free.
    """

    rank: Rank
    amount: int
    until: int
    waits_for: Key  # it is kept while the run waits for this one

    def gives_way_to(self, rank: Rank, now: int) -> bool:
        """Of each key only one run is kept something, the first of those that could have it."""
        return rank <= self.rank or self.until <= now

    def left_of(self, state: KeyState, rank: Rank, now: int) -> KeyState:
        """How the key stands for a run of this rank."""
        return state if self.gives_way_to(rank, now) else self.kept_of(state)

    def kept_of(self, state: KeyState) -> KeyState:
        """How the key stands for those who have to leave it to this run."""
        return replace(state, kept=wanted(self.amount, state.rule))


def kept_until(since: int, now: int) -> int:
    """For as long again as its run has waited.

    So it is kept for longer each time that it was in vain, and who waits for what never comes does
    not keep others waiting for ever.
    """
    return now + max(now - since, 0)
