"""Who holds and who waits for the keys that runs share, and the limits of single jobs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from rota.domain.key_gates import PROMISED, Kept, Rank, kept_until, rank_of
from rota.domain.keys import (
    ONE_AT_A_TIME,
    SECOND,
    Bucket,
    Counted,
    Key,
    KeyKind,
    KeyRule,
    KeyState,
    Rate,
    Shortage,
    behind,
    gate_order,
    kind_of,
    shortage,
    wanted,
)
from rota.domain.simulation.chains import Entry
from rota.domain.simulation.model import SimRun


@dataclass(slots=True)
class _Gate:
    """A key with those who wait for it, the first to have it first."""

    rule: KeyRule
    held: int = 0
    queued: int = 0
    bucket: Bucket | None = None
    waiting: list[tuple[int, int, Entry]] = field(default_factory=list)
    last_at: int | None = None  # when the last of them may have it; None: nobody knows
    kept: Kept | None = None  # for a run that waits for another key

    @property
    def state(self) -> KeyState:
        return KeyState(self.rule, self.held, self.queued, self.bucket)

    def state_for(self, entry: Entry, now: int) -> KeyState:
        state = self.state
        return state if self.kept is None else self.kept.left_of(state, _rank(entry), now)

    def goes_first(self, entry: Entry) -> bool:
        """Whether nobody waits who has to have it before."""
        return not self.waiting or _rank(entry) < self.waiting[0][:2]

    def let_wait(self, entry: Entry, eligible_at: int | None) -> None:
        if eligible_at is not None:
            self.last_at = max(eligible_at, self.last_at or eligible_at)
        heapq.heappush(self.waiting, (*_rank(entry), entry))


class Gates:
    """Lets runs through to the queue while there is room in every key they use."""

    def __init__(
        self, rules: Mapping[Key, KeyRule], levels: Mapping[Key, float], now: float
    ) -> None:
        """`levels` are the tokens in buckets now; those that are missing are full."""
        self._gates = {key: _Gate(rule) for key, rule in rules.items()}
        for key, level in levels.items():
            if key in rules and isinstance(rule := rules[key], Rate):
                self._gates[key].bucket = Bucket(rule, level, _micros(now))

    def keys_of(self, run: SimRun) -> Mapping[Key, int]:
        """What the run takes, in the order of the gates; keys without a rule bind nobody."""
        keys: dict[Key, int] = {}
        if run.limit is not None:
            key = f"job:{run.group or run.job}"
            self._gates.setdefault(key, _Gate(Counted(run.limit)))
            keys[key] = 1
        for key in sorted(run.demands, key=gate_order):
            if key not in self._gates and kind_of(key) is KeyKind.EXCLUSIVE:
                self._gates[key] = _Gate(ONE_AT_A_TIME)
            if key in self._gates:
                keys[key] = wanted(run.demands[key], self._gates[key].rule)
        return keys

    def admit(self, entry: Entry, now: float) -> Shortage | None:
        """Let a run through, or make it wait for the first key that is short."""
        return self._admit(entry, now, entry.keys)

    def _admit(self, entry: Entry, now: float, order: Iterable[Key]) -> Shortage | None:
        short = self._first_short(entry, now, order)
        if short is not None:
            self.let_wait(entry, short)
            return short
        entry.promised_until = now + PROMISED / SECOND
        for key, amount in entry.keys.items():
            self._gates[key].queued += amount
        return None

    def let_wait(self, entry: Entry, short: Shortage) -> None:
        self._gates[short.key].let_wait(entry, short.eligible_at)

    def break_promise(self, entry: Entry) -> None:
        """What a run in the queue wants is for others, too; its job still counts it."""
        entry.promised_until = -inf
        for key in entry.run.demands.keys() & entry.keys.keys():
            self._gates[key].queued -= entry.keys[key]

    def claim(self, entry: Entry, now: float) -> Shortage | None:
        """A run in the queue takes its keys; else what it is short of, as others have it."""
        if entry.promised_until > -inf:
            self.break_promise(entry)
        for key in entry.keys.keys() - entry.run.demands:
            self._gates[key].queued -= entry.keys[key]
        for key, amount in entry.keys.items():
            state, micros = self._gates[key].state, _micros(now)
            if short := shortage(key, amount, state, micros, claims=True):
                return short
        for key, amount in entry.keys.items():
            self._hold(self._gates[key], amount, now)
        return None

    def hold(self, entry: Entry) -> None:
        """A run that is at work already has its keys; its tokens are gone from the buckets."""
        for key, amount in entry.keys.items():
            gate = self._gates[key]
            if isinstance(gate.rule, Counted):
                gate.held += amount

    def give_back(self, entry: Entry) -> None:
        for key, amount in entry.keys.items():
            gate = self._gates[key]
            if isinstance(gate.rule, Counted):
                gate.held -= amount

    def release(self, key: Key, now: float) -> Iterator[tuple[Entry, Shortage | None]]:
        """Those who need not wait for the key any more, with what they wait for instead.

        The last one may wait for the same key on: then nobody after it is let past.
        """
        gate = self._gates[key]
        gate.last_at = None
        while gate.waiting:
            entry = heapq.heappop(gate.waiting)[2]
            short = self._admit(entry, now, sorted(entry.keys, key=key.__ne__))
            if short is None or short.key != key:
                self._forget_kept(entry)
            if short is not None and short.key != key:
                self._keep(entry, short.key, _micros(now))
            yield entry, short
            if short is not None and short.key == key:
                return

    def kept_until(self, key: Key) -> float | None:
        """When nothing of it is kept for anybody any more; None: nothing is."""
        kept = self._gates[key].kept
        return None if kept is None else kept.until / SECOND

    def _forget_kept(self, entry: Entry) -> None:
        for key in entry.keys:
            gate = self._gates[key]
            if gate.kept is not None and gate.kept.rank == _rank(entry):
                gate.kept = None

    def _keep(self, entry: Entry, waits_for: Key, now: int) -> None:
        """Keep what a run could have that waits for another key; slots of its job are not kept."""
        rank, demands = _rank(entry), entry.run.demands
        until = kept_until(_micros(entry.run.arrives_at), now)
        for key in demands.keys() & entry.keys.keys() if waits_for in demands else ():
            gate = self._gates[key]
            is_free = gate.kept is None or gate.kept.gives_way_to(rank, now)
            if is_free and self._short(entry, key, now) is None:
                gate.kept = Kept(rank, entry.keys[key], until, waits_for)

    def _first_short(self, entry: Entry, now: float, order: Iterable[Key]) -> Shortage | None:
        micros = _micros(now)
        found = (self._short(entry, key, micros) for key in order)
        return next((short for short in found if short is not None), None)

    def _short(self, entry: Entry, key: Key, now: int) -> Shortage | None:
        gate, amount = self._gates[key], entry.keys[key]
        state = gate.state_for(entry, now)
        if gate.goes_first(entry):
            return shortage(key, amount, state, now, claims=False)
        return behind(key, amount, state, now, gate.last_at)

    def _hold(self, gate: _Gate, amount: int, now: float) -> None:
        match gate.rule:
            case Counted():
                gate.held += amount
            case Rate() as rule:
                micros = _micros(now)
                bucket = gate.bucket or Bucket.full(rule, micros)
                gate.bucket = bucket.take(amount, micros)


def _micros(seconds: float) -> int:
    return round(seconds * SECOND)


def _rank(entry: Entry) -> Rank:
    run = entry.run
    created_at = run.arrives_at if run.created_at is None else run.created_at
    return rank_of(run.priority, _micros(created_at), entry.seq)
