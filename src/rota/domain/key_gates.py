"""Gate of shared keys: who goes first, who may have them now, and what the others are told.

Whoever waits for a key goes by age, with priority as a head start. As long as the first of them
cannot go, nobody of lower rank passes it: a writer is not kept waiting by ever new readers, nor a
run of low priority by ever new ones of a higher. What a run could have is kept for it for a while
when it has to wait for another key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rota.domain.gates import Gate
from rota.domain.ids import instant
from rota.domain.keys import (
    MINUTE_QUOTA,
    READERS,
    SECOND,
    Bucket,
    Counted,
    Demands,
    Key,
    KeyKind,
    KeyState,
    Rate,
    Shortage,
    behind,
    gate_order,
    is_charged_later,
    kind_of,
    name_of,
    shortage,
    wanted,
)
from rota.domain.order import BOOST_SECONDS
from rota.domain.run import Reason

Rank: TypeAlias = tuple[int, int]  # see `rank_of`: the lowest goes first
BOOST = round(BOOST_SECONDS * SECOND)  # head start of one step of priority
# So long a run in the queue keeps others from its keys. Whoever finds no worker by then, as its
# pool is empty or full, may have to wait for its keys once more when it does.
PROMISED = 10 * SECOND


def rank_of(priority: int, created_at: int, seq: int) -> Rank:
    """Return the place of a run among those that want a key; waiting lifts it over later ones."""
    return created_at - priority * BOOST, seq


@dataclass(frozen=True, slots=True)
class Waiter:
    """A run that waits for a key."""

    rank: Rank
    eligible_at: int | None = None  # when it may go; None: nobody knows


@dataclass(frozen=True, slots=True)
class Waiters:
    """Runs that wait for a key already."""

    first: Rank
    last_at: int | None = None  # when the last of them may go; None: nobody knows

    @classmethod
    def before(cls, rank: Rank, known: Collection[Waiter]) -> Waiters:
        """Return the waiters before a run of this rank; the first and the last are known."""
        times = [each.eligible_at for each in known if each.rank < rank]
        last_at = max((at for at in times if at is not None), default=None)
        return cls(min(each.rank for each in known), last_at)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait of a run that waits already: for which key, and since when it waits at all."""

    key: Key
    since: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Amount of a key that is kept for a run which could have it, but waits for another key.

    Without it, a run of several keys might find one of them taken whenever another is free.
    """

    rank: Rank
    amount: int
    until: int
    waits_for: Key  # it is kept while the run waits for this one

    def gives_way_to(self, rank: Rank, now: int) -> bool:
        """Return whether it yields: of each key only the first run that fits is kept some."""
        return rank <= self.rank or self.until <= now

    def left_of(self, state: KeyState, rank: Rank, now: int) -> KeyState:
        """Return the state of the key for a run of this rank."""
        return state if self.gives_way_to(rank, now) else self.kept_of(state)

    def kept_of(self, state: KeyState) -> KeyState:
        """Return the state of the key for those who have to leave it to this run."""
        return replace(state, kept=wanted(self.amount, state.rule))


def kept_until(since: int, now: int) -> int:
    """Return until when to keep it: for as long again as its run has waited.

    So it is kept for longer each time that it expired unused, and a run whose other key never comes
    does not block others for ever.
    """
    return now + max(now - since, 0)


GATES = {
    KeyKind.EXCLUSIVE: Gate.EXCLUSIVE_BY,
    KeyKind.RATE: Gate.RATE_LIMIT,
    KeyKind.QUOTA: Gate.QUOTA,
    KeyKind.RESOURCE: Gate.RESOURCE,
}


class KeyGate:
    """Gate that gives keys to runs one after another, seeing those that asked before.

    Runs that `claim` take keys for good; others are only let through to the queue. A key without
    a state has no rule, and everybody may have it.
    """

    def __init__(
        self,
        now: int,
        states: Mapping[Key, KeyState],
        waiters: Mapping[Key, Waiters] | None = None,
        kept: Mapping[Key, Kept] | None = None,
        *,
        claims: bool = False,
    ) -> None:
        self._now = now
        self._states = dict(states)
        self._waiters = dict(waiters or {})
        self._kept = dict(kept or {})
        self._claims = claims
        self.buckets: dict[Key, Bucket] = {}  # of which tokens were taken
        self.kept: dict[Key, Kept] = {}  # of which something is kept from now on

    def ask(self, demands: Demands, rank: Rank, wait: Wait | None = None) -> tuple[Shortage, ...]:
        """List all that a run is short of, in the order of the gates; empty: it has all of them.

        One that waits already goes on to wait for the same key, unless it could have that now.
        """
        found = (self._short(key, demands[key], rank) for key in sorted(demands, key=gate_order))
        short = [each for each in found if each is not None]
        if wait is not None:
            short.sort(key=lambda each: each.key != wait.key)
        if not short:
            self._give(demands, rank)
            return ()
        if wait is not None and short[0].key != wait.key:
            self._keep(demands, rank, wait, short)
        self._let_wait(short[0], rank)
        return tuple(short)

    def _short(self, key: Key, amount: int, rank: Rank) -> Shortage | None:
        state = self._states.get(key)
        if state is None:
            return None
        if self._claims:
            return shortage(key, amount, state, self._now, claims=True)
        if (kept := self._kept.get(key)) is not None:
            state = kept.left_of(state, rank, self._now)
        waiters = self._waiters.get(key)
        if waiters is None or rank <= waiters.first:
            return shortage(key, amount, state, self._now, claims=False)
        return behind(key, amount, state, self._now, waiters.last_at)

    def _let_wait(self, short: Shortage, rank: Rank) -> None:
        known = self._waiters.get(short.key)
        if known is None:
            self._waiters[short.key] = Waiters(rank, short.eligible_at)
        else:
            times = [at for at in (known.last_at, short.eligible_at) if at is not None]
            self._waiters[short.key] = Waiters(min(known.first, rank), max(times, default=None))

    def _keep(self, demands: Demands, rank: Rank, wait: Wait, short: Sequence[Shortage]) -> None:
        until = kept_until(wait.since, self._now)
        for key in demands.keys() & self._states.keys() - {each.key for each in short}:
            known = self._kept.get(key)
            if known is None or known.gives_way_to(rank, self._now):
                kept = Kept(rank, demands[key], until, short[0].key)
                self._kept[key] = self.kept[key] = kept

    def _give(self, demands: Demands, rank: Rank) -> None:
        for key, amount in demands.items():
            state = self._states.get(key)
            if state is not None:
                self._states[key] = self._given(key, amount, state)
            if key in self._kept and self._kept[key].rank == rank:
                del self._kept[key]  # it has that now

    def _given(self, key: Key, amount: int, state: KeyState) -> KeyState:
        if not self._claims:
            return replace(state, queued=state.queued + amount)
        match state.rule:
            case Counted():
                return replace(state, held=state.held + amount)
            case Rate() as rule:
                bucket = state.bucket_of(rule, self._now)
                taken = bucket.take(wanted(amount, rule), self._now)
                self.buckets[key] = taken
                return replace(state, bucket=taken)


def room_of(state: KeyState, now: int) -> int:
    """Return how many runs that take one of it may come to the queue now."""
    match state.rule:
        case Counted(total):
            return max(total - state.held - state.queued, 0)
        case Rate() as rule:
            level = state.bucket_of(rule, now).level_at(now)
            return max(int(level) - state.queued, 0)


def is_untouched(state: KeyState, now: int) -> bool:
    """Return whether the state of a key is as if nobody had ever used it."""
    match state.rule:
        case Counted():
            return not state.held and not state.queued
        case Rate() as rule:
            return state.bucket_of(rule, now).level_at(now) >= rule.burst


def reasons_of(short: Iterable[Shortage]) -> tuple[Reason, ...]:
    """Return the reasons that a waiting run shows."""
    return tuple(_reason(each) for each in short)


def _reason(short: Shortage) -> Reason:
    kind, name = kind_of(short.key), name_of(short.key)
    eligible_at = None if short.eligible_at is None else instant(short.eligible_at)
    return Reason(GATES[kind], _message(short), short.key, eligible_at, _action(kind, name))


def _message(short: Shortage) -> str:
    kind, name = kind_of(short.key), name_of(short.key)
    if kind is KeyKind.EXCLUSIVE:
        return f"another run with {_values_in_words(name)} goes first (exclusive_by)"
    return f"{GATES[kind].replace('_', ' ')} {name}: {_in_words(short)}"


def _action(kind: KeyKind, name: str) -> str:
    match kind:
        case KeyKind.EXCLUSIVE:
            return "rota run list --active"
        case KeyKind.RATE:
            return f"rota limit show {name.split('/', 1)[0]}"
        case KeyKind.QUOTA:
            return "rota quota show"
        case KeyKind.RESOURCE:
            return f"rota resource show {name}"


def _in_words(short: Shortage) -> str:
    turn = ", others wait before it" if short.is_behind else ""
    if is_charged_later(short.key):
        return f"{short.total - short.used:,} of {short.total:,} bytes left{turn}"
    if _has_tokens(short.key):
        return f"{short.total - short.used} of {short.total} tokens{turn}"
    if kind_of(short.key) is KeyKind.RESOURCE and short.total == READERS:
        use = "in use by a writer" if short.used >= READERS else f"{short.used} readers have it"
        return f"{use}{turn}"
    return f"{short.used} of {short.total} in use{turn}"


def _has_tokens(key: Key) -> bool:
    kind = kind_of(key)
    return kind is KeyKind.RATE or (kind is KeyKind.QUOTA and name_of(key) == MINUTE_QUOTA)


def _values_in_words(name: str) -> str:
    """Format the values of an `exclusive_by` key; only the names where the values are too long."""
    if not name.startswith("{"):
        return f"the same {name.split('#', 1)[0]}"
    return ", ".join(f"{input_}={value}" for input_, value in json.loads(name).items())
