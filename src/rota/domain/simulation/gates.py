"""Who holds and who waits for the keys that runs share, and the limits of single jobs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rota.domain.key_gates import Rank, rank_of
from rota.domain.shared_keys import (
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
    kind_of,
    shortage,
    wanted,
)
from rota.domain.simulation.line import Entry
from rota.domain.simulation.model import SimRun

_GATE_ORDER = {kind: place for place, kind in enumerate(KeyKind)}
_ALONE = Counted(1)


@dataclass(slots=True)
class _Gate:
    """A key with those who wait for it, the first to have it first."""

    rule: KeyRule
    held: int = 0
    queued: int = 0
    bucket: Bucket | None = None
    waiting: list[tuple[int, int, Entry]] = field(default_factory=list)
    last_at: int | None = None  # when the last of them may have it; None: nobody knows

    @property
    def state(self) -> KeyState:
        return KeyState(self.rule, self.held, self.queued, self.bucket)

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
        for key in sorted(run.demands, key=lambda key: (_GATE_ORDER[kind_of(key)], key)):
            if key not in self._gates and kind_of(key) is KeyKind.EXCLUSIVE:
                self._gates[key] = _Gate(_ALONE)
            if key in self._gates:
                keys[key] = wanted(run.demands[key], self._gates[key].rule)
        return keys

    def admit(self, entry: Entry, now: float) -> Shortage | None:
        """Let a run through, or make it wait for the first key that is short."""
        short = self._first_short(entry, now)
        if short is None:
            for key, amount in entry.keys.items():
                self._gates[key].queued += amount
        else:
            self._gates[short.key].let_wait(entry, short.eligible_at)
        return short

    def claim(self, entry: Entry, now: float) -> None:
        """A run that was let through takes its keys."""
        for key, amount in entry.keys.items():
            gate = self._gates[key]
            gate.queued -= amount
            self._hold(gate, amount, now)

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
            short = self.admit(entry, now)
            yield entry, short
            if short is not None and short.key == key:
                return

    def _first_short(self, entry: Entry, now: float) -> Shortage | None:
        micros = _micros(now)
        for key, amount in entry.keys.items():
            gate = self._gates[key]
            if not gate.goes_first(entry):
                return behind(key, amount, gate.state, micros, gate.last_at)
            short = shortage(key, amount, gate.state, micros, claims=False)
            if short is not None:
                return short
        return None

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
    return rank_of(entry.run.priority, _micros(entry.run.arrives_at), entry.seq)
