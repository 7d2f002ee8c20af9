"""World on a virtual clock in which runs come, wait, start and end as Rota would have it.

Every decision is the scheduler's own: order of service, placement, shared keys. What is simpler
than in a cluster: claims take no time and give one run after another, workers neither come nor
go, a reservation lasts until its run starts, and the best fit is sought among a few workers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from math import inf
from operator import attrgetter

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
from rota.domain.simulation.model import Observer, SimRun, SimWorker
from rota.domain.simulation.pool import Placed, Pool


@dataclass(slots=True)
class _Gate:
    """Key with those who wait for it, the first to have it first."""

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
        """Return whether nobody waits who has to have it before."""
        return not self.waiting or _rank(entry) < self.waiting[0][:2]

    def let_wait(self, entry: Entry, eligible_at: int | None) -> None:
        if eligible_at is not None:
            self.last_at = max(eligible_at, self.last_at or eligible_at)
        heapq.heappush(self.waiting, (*_rank(entry), entry))


class Gates:
    """Gates of shared keys: they let runs through to the queue while every key has room."""

    def __init__(
        self, rules: Mapping[Key, KeyRule], levels: Mapping[Key, float], now: float
    ) -> None:
        """Set up the gates. `levels` are the tokens in buckets now; missing ones are full."""
        self._gates = {key: _Gate(rule) for key, rule in rules.items()}
        for key, level in levels.items():
            if key in rules and isinstance(rule := rules[key], Rate):
                self._gates[key].bucket = Bucket(rule, level, _micros(now))

    def keys_of(self, run: SimRun) -> Mapping[Key, int]:
        """Return what the run takes, in the order of the gates; keys without a rule bind nobody."""
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
        """Let others have what a queued run wants of its keys; its job still counts it."""
        entry.promised_until = -inf
        for key in entry.run.demands.keys() & entry.keys.keys():
            self._gates[key].queued -= entry.keys[key]

    def claim(self, entry: Entry, now: float) -> Shortage | None:
        """Take the keys of a queued run; else return what it is short of, as others have it."""
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
        """Give a live run its keys; its tokens are gone from the buckets."""
        for key, amount in entry.keys.items():
            gate = self._gates[key]
            if isinstance(gate.rule, Counted):
                gate.held += amount

    def forget(self, entry: Entry) -> None:
        """Let others have what a run waited for, or was let through to, that will not start."""
        if not entry.is_queued:
            for key in entry.keys:
                gate = self._gates[key]
                gate.waiting = [each for each in gate.waiting if each[2] is not entry]
                heapq.heapify(gate.waiting)
            self._forget_kept(entry)
            return
        if entry.promised_until > -inf:
            self.break_promise(entry)
        for key in entry.keys.keys() - entry.run.demands:
            self._gates[key].queued -= entry.keys[key]

    def give_back(self, entry: Entry) -> None:
        for key, amount in entry.keys.items():
            gate = self._gates[key]
            if isinstance(gate.rule, Counted):
                gate.held -= amount

    def release(self, key: Key, now: float) -> Iterator[tuple[Entry, Shortage | None]]:
        """Yield those who need not wait for the key any more, with what they wait for instead.

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
        """Return when nothing of it is kept for anybody any more; None: nothing is."""
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


@dataclass(frozen=True, slots=True)
class _Drop:
    """End of the time in which a run may start."""

    seq: int


_NO_OBSERVER = Observer()


class World:
    """Workers, rules and what is under way; `simulate` lets time pass."""

    def __init__(
        self,
        workers: Iterable[SimWorker],
        rules: Mapping[Key, KeyRule] | None = None,
        weights: Mapping[str, float] | None = None,
        now: float = 0.0,
        levels: Mapping[Key, float] | None = None,
    ) -> None:
        """Set up a world. `weights` are by share key, and by project for its users; 1 if missing.

        `levels` are the tokens that rate limits have left now; those that are missing are full.
        """
        self.now = now
        self._weights = weights or {}
        by_pool = attrgetter("pool")
        self._pools = {
            pool: Pool(list(members), self._weights, self._takes_keys)
            for pool, members in groupby(sorted(workers, key=by_pool), key=by_pool)
        }
        self._gates = Gates(rules or {}, levels or {}, now)
        self._seqs = count()
        # Ends, keys to look at, runs that come because of others, and ends of promises.
        self._events: list[tuple[float, int, Placed | Key | SimRun | Entry | _Drop]] = []
        self._droppable: dict[int, Entry] = {}  # those that wait, by their number
        self._looks: dict[Key, float] = {}  # the next one at each key
        self._observer = _NO_OBSERVER

    def preload_running(self, run: SimRun, worker: str, started_at: float) -> None:
        """Add a live run; `seconds` count from its start.

        It may be at a worker that is not of this world: its keys are, until it ends.
        """
        entry, rooms = self._entry(run), self._pool(run).rooms
        station = rooms.stations.get(worker) or rooms.outside(worker)
        rooms.close(station)
        station.take(entry)
        rooms.open(station)
        entry.started_at = started_at
        self._gates.hold(entry)
        self._end_later(entry, max(started_at + run.seconds, self.now), (entry, station))

    def come_later(self, run: SimRun) -> None:
        """Add a run that comes because of another, while time passes; not before now."""
        heapq.heappush(self._events, (run.arrives_at, next(self._seqs), run))

    def simulate(
        self, runs: Iterable[SimRun], until: float, observer: Observer = _NO_OBSERVER
    ) -> None:
        """Let time pass. The runs are in order of `arrives_at`; an end comes before an arrival."""
        self._observer = observer
        for run in runs:
            if run.arrives_at > until:
                break
            self._advance(run.arrives_at)
            self._arrive(run)
        self._advance(until)

    def _advance(self, until: float) -> None:
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, event = heapq.heappop(events)
            if isinstance(event, str):
                self._look_at(event)
            elif isinstance(event, SimRun):
                self._arrive(event)
            elif isinstance(event, Entry):
                self._break_promise(event)
            elif isinstance(event, _Drop):
                self._drop(event.seq)
            else:
                self._end(event)
        self.now = max(self.now, until)

    def _arrive(self, run: SimRun) -> None:
        if run.drop_at <= self.now:
            self._observer.on_drop(run, self.now)
            return
        entry = self._entry(run)
        if run.drop_at < inf:
            self._droppable[entry.seq] = entry
            heapq.heappush(self._events, (run.drop_at, next(self._seqs), _Drop(entry.seq)))
        if self._pool(run).rooms.anybody_could_take(entry.sort):
            self._enter(entry, self._gates.admit(entry, self.now))
        else:
            self._observer.on_blocked(run, f"worker:{run.pool}", self.now, None)

    def _enter(self, entry: Entry, short: Shortage | None) -> None:
        """Queue a run, or make it wait for a key."""
        if short is None:
            entry.is_queued = True
            self._observer.on_queued(entry.run, self.now)
            for placed in self._pool(entry.run).arrive(entry, self.now):
                self._start(placed)
            if entry.run.demands and not entry.is_served:
                heapq.heappush(self._events, (entry.promised_until, next(self._seqs), entry))
        else:
            self._tell(entry, short)

    def _tell(self, entry: Entry, short: Shortage) -> None:
        """Tell the observer that it waits for a key."""
        eligible_at = None if short.eligible_at is None else short.eligible_at / SECOND
        self._observer.on_blocked(entry.run, short.key, self.now, eligible_at)
        if eligible_at is not None:
            self._look_later(short.key, eligible_at)

    def _takes_keys(self, entry: Entry) -> bool:
        """Take the keys of a run that is to start; if one is short, it waits for that again."""
        short = self._gates.claim(entry, self.now)
        if short is None:
            return True
        waiting = replace(entry, is_queued=False)  # the queue forgets the entry that it knows
        if entry.seq in self._droppable:
            self._droppable[entry.seq] = waiting
        self._gates.let_wait(waiting, short)
        self._tell(entry, short)
        for key in entry.keys:
            if key != short.key:
                self._look_later(key, self.now)
        return False

    def _break_promise(self, entry: Entry) -> None:
        """Let others have the keys of a run that has waited for a worker for long."""
        if not entry.is_served and entry.promised_until == self.now:
            self._gates.break_promise(entry)
            for key in entry.keys:
                self._release(key)

    def _drop(self, seq: int) -> None:
        """Miss a run that has not started in time."""
        entry = self._droppable.pop(seq, None)
        if entry is None:
            return
        self._observer.on_drop(entry.run, self.now)
        self._gates.forget(entry)
        if entry.is_queued:
            for placed in self._pool(entry.run).drop(entry, self.now):
                self._start(placed)
        for key in entry.keys:
            self._release(key)

    def _start(self, placed: Placed) -> None:
        entry, station = placed
        self._droppable.pop(entry.seq, None)
        self._observer.on_start(entry.run, station.worker.name, self.now)
        self._end_later(entry, self.now + entry.run.seconds, placed)

    def _end_later(self, entry: Entry, at: float, placed: Placed) -> None:
        heapq.heappush(self._events, (at, entry.seq, placed))

    def _end(self, placed: Placed) -> None:
        entry, station = placed
        pool = self._pool(entry.run)
        pool.rooms.close(station)
        station.give_back(entry)
        pool.chains.correct(entry)
        self._observer.on_end(entry.run, station.worker.name, self.now)
        if entry.keys:
            self._gates.give_back(entry)
            for key in entry.keys:
                self._release(key)
        for start in pool.serve(station, self.now):
            self._start(start)

    def _look_later(self, key: Key, at: float) -> None:
        if key not in self._looks or at < self._looks[key]:
            self._looks[key] = at
            heapq.heappush(self._events, (at, next(self._seqs), key))

    def _look_at(self, key: Key) -> None:
        if self._looks.get(key) == self.now:  # else an earlier look took its place
            del self._looks[key]
            self._release(key)

    def _release(self, key: Key) -> None:
        concerned = {key: None}  # what those could have who wait for something else is kept
        for entry, short in self._gates.release(key, self.now):
            self._enter(entry, short)
            concerned.update(dict.fromkeys(entry.keys))
        for each in concerned:
            until = self._gates.kept_until(each)
            if until is not None and until > self.now:
                self._look_later(each, until)

    def _entry(self, run: SimRun) -> Entry:
        pool = self._pool(run)
        ranked = pool.chains.chain_of(run.priority, run.share)
        return Entry(run, next(self._seqs), pool.sort_of(run), ranked, self._gates.keys_of(run))

    def _pool(self, run: SimRun) -> Pool:
        pool = self._pools.get(run.pool)
        if pool is None:
            pool = self._pools[run.pool] = Pool([], self._weights, self._takes_keys)
        return pool
