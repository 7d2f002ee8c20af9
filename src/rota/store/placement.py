"""Placing queued runs on a worker: in order of service, and as they fit where they ask for more.

Where no run asks for more than a slot, slots are allotted to chains at once and each chain is read
once (`pick`). Else runs are placed one by one (`place`). One worker of a pool is kept free for the
best-ranked run that does not fit now, and for its first second a run is left to the worker with
room where it leaves least over.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from typing import TypeAlias

from rota.domain.order import DEFAULT_EXPECTED_SECONDS, Chain, allot, cost_of, oldest_slots
from rota.domain.resources import (
    HTTP_SLOTS,
    ONE_SLOT,
    Vector,
    dominant_share,
    fits,
    minus,
    tighter_fit,
)
from rota.domain.shape import (
    Occupied,
    Placement,
    Reservation,
    Verdict,
    all_labels,
    alone,
    demand_of,
    unmet,
)
from rota.store.memory import Look, capacity_in, shape_rows, times
from rota.store.rows import by_kind, from_json, offered_from, to_json
from rota.store.script import Many, Query, Row, Rows, Script, lock, query
from rota.store.tx import Tx

Picked: TypeAlias = dict[int, Row]  # runs by sequence number, in the order that they were picked
# A claim gives up beyond these: what it does not find gets a place as the oldest, or by another.
_MAX_KEPT = 16  # runs of one shape that would be in the way of a reservation
_MAX_EMPTY = 50  # chains in which nothing fits
_SECOND = 1_000_000
_LEASE = timedelta(minutes=1) // timedelta(microseconds=1)  # a worker is kept free for so long
# A hint brings the better worker within milliseconds. Whoever polls comes after two seconds, and
# must not find that a run is still to be left to somebody who never came.
_YOUNG = 1_000_000
_MAX_WORKERS = 100  # in a larger pool nothing is left to others
_MAX_LEFT = 100  # by one claim
_seq = itemgetter("seq")


@dataclass(frozen=True, slots=True)
class Queue:
    """The runs of a pool, from the view of a worker with free slots."""

    pool: str
    slots: int  # that may be filled
    served: int  # by the pool so far
    chains: Sequence[Chain]  # with the weights that count among them
    shapes: Sequence[str]  # what could ever fit the worker
    totals: Vector  # what all workers of the pool offer
    look: Look
    named: Sequence[str] = ()  # runs that a ticket named
    _shares: dict[str, float] = field(default_factory=dict)  # of the pool, by shape

    def by_rate(self, picked: Picked) -> Mapping[float, Sequence[int]]:
        """These runs by what a second of them costs their chain."""
        weights = {chain.id: chain.weight for chain in self.chains}
        found: defaultdict[float, list[int]] = defaultdict(list)
        for (shape, chain), rows in by_kind(picked.values(), itemgetter("shape", "chain")).items():
            found[self.share_of(shape) / weights.get(chain, 1.0)] += map(_seq, rows)
        return found

    @property
    def slot_cost(self) -> float:
        """The cost of a run that asks for nothing but a slot, if nobody knows how long it takes."""
        return cost_of(DEFAULT_EXPECTED_SECONDS, dominant_share(ONE_SLOT, self.totals))

    def share_of(self, shape: str) -> float:
        """The part of the pool that a run of this shape takes."""
        if shape not in self._shares:
            self._shares[shape] = dominant_share(demand_of(shape).resources, self.totals)
        return self._shares[shape]


def pick(tx: Tx, queue: Queue) -> Script[Picked]:
    """Runs that ask for nothing but a slot: every 16th the oldest, those named, then by chain."""
    picked = by_seq((yield from oldest_runs(queue, queue.shapes)))
    picked |= by_seq((yield from named_runs(queue, queue.slots - len(picked))))
    chains = list(queue.chains)
    while chains and len(picked) < queue.slots:
        before = len(picked)
        exhausted = set()
        for chain, share in allot(chains, queue.slots - before, queue.slot_cost):
            first, limit = queue.look.firsts[chain], share + before
            found = yield query(
                "chain_heads", chain=chain, first=first, shapes=queue.shapes, limit=limit
            )
            fresh = [row for row in found if row["seq"] not in picked] if picked else found
            fresh = fresh[:share]
            picked |= by_seq(fresh)
            if len(fresh) < share:
                exhausted.add(chain)
        tx.effects.chains.leave(exhausted & queue.look.whole)
        chains = [chain for chain in chains if chain.id not in exhausted]
    return picked


def by_seq(rows: Rows) -> Picked:
    return dict(zip(map(_seq, rows), rows, strict=True))


def named_runs(queue: Queue, limit: int) -> Script[Rows]:
    """The runs that a ticket named, as far as they can be had."""
    if not queue.named or not limit:
        return ()
    return (
        yield query(
            "named_runs", ids=queue.named, pool=queue.pool, shapes=queue.shapes, limit=limit
        )
    )


def oldest_runs(queue: Queue, shapes: Sequence[str]) -> Script[Rows]:
    """The oldest runs of these shapes, as many as have a slot of their own: see `domain.order`."""
    limit = oldest_slots(queue.served, queue.slots)
    has_that_order = len(queue.chains) == 1 and not queue.named
    if not limit or has_that_order:
        return ()
    looked_at = queue.look.as_json()
    return (yield query("oldest_runs", chains=looked_at, shapes=shapes, limit=limit))


def asks_for_resources(shape: str) -> bool:
    """Whether runs of this shape take more than a slot."""
    demand = demand_of(shape)
    return demand.is_alone or demand.resources != ONE_SLOT


def place(tx: Tx, session: Row, queue: Queue) -> Script[tuple[Picked, Wanted]]:
    """Runs that fit what the worker has left, in order of service; and what is to be reserved."""
    leased = yield query("leased_demands", session=session["id"])
    found = yield from pool_reservation(tx.now, queue.pool, session)
    others = Neighbours(tx.now, queue.pool, session["id"], found.kept_free)
    room = _Room(tx.now, queue, found, _placement(tx.now, leased, found), leased, others)
    yield from _offer_all(room, (yield from reserved_run(found.here, room.placement.free)))
    yield from _offer_all(room, (yield from oldest_runs(queue, room.fitting_shapes())))
    yield from _offer_all(room, (yield from named_runs(queue, room.slots)))
    yield from _serve_by_rank(tx, room)
    tx.effects.left.update(others.left.values())
    return room.picked, Wanted(found, room.best, room.behind)


def _placement(now: int, leased: Rows, found: PoolReservation) -> Placement:
    """The room of a worker. Of runs that came beside a reservation only a timeout counts."""
    beside = found.beside([row["seq"] for row in leased])
    ends = [
        (_latest_end if row["seq"] in beside else _ends_at)(row["began_at"], row) for row in leased
    ]
    demands = [demand_of(row["shape"]).on(found.capacity) for row in leased]
    takers = [Occupied(demand, end) for demand, end in zip(demands, ends, strict=True)]
    return Placement(found.capacity, now, takers, found.here)


@dataclass(slots=True)
class _Room:
    """The room that a worker has left, and who got a place in it."""

    now: int
    queue: Queue
    found: PoolReservation
    placement: Placement
    leased: Rows
    others: Neighbours
    picked: Picked = field(default_factory=dict)
    full: set[str] = field(default_factory=set)  # shapes that get no place any more
    best: Row | None = None  # the first by rank that does not fit now
    behind: Collection[int] = ()  # who had a place before it
    _kept: Counter[str] = field(default_factory=Counter)  # by shape, who was in another's way

    @property
    def slots(self) -> int:
        return self.queue.slots - len(self.picked)

    def fitting_shapes(self) -> list[str]:
        free = self.placement.free
        return [shape for shape in self.queue.shapes if fits(self._demand(shape), free)]

    def is_decided(self, row: Row) -> bool:
        return row["seq"] in self.picked or row["seq"] in self.others.left

    def leaves(self, row: Row) -> Script[bool]:
        """Whether it would fit here, but is left to a worker that it fits better."""
        free = self.placement.free
        if self.found.is_for([row["seq"]]) or not fits(self._demand(row["shape"]), free):
            return False
        return (yield from self.others.gets(row, free))

    def offer(self, row: Row) -> Verdict:
        ends_at, latest = _ends_at(self.now, row), _latest_end(self.now, row)
        verdict = self.placement.offer(row["seq"], self._demand(row["shape"]), ends_at, latest)
        if verdict is Verdict.TAKEN:
            self.picked[row["seq"]] = row
        return verdict

    def leave_out(self, row: Row, verdict: Verdict) -> None:
        """Room only shrinks: what finds none now finds none later in this claim."""
        if verdict is Verdict.NO_ROOM:
            self.full.update(set(self.queue.shapes).difference(self.fitting_shapes()))
            # Http slots are alike and come free one by one: nobody needs them kept.
            if self.best is None and HTTP_SLOTS not in self._demand(row["shape"]):
                self.best = row
                self._keep_room_for(row)
        self._kept[row["shape"]] += 1
        if self._kept[row["shape"]] >= _MAX_KEPT:
            self.full.add(row["shape"])

    def _keep_room_for(self, row: Row) -> None:
        """Keep room from now on, if nothing else is kept free in this pool."""
        if not self.found.counts or self.found.is_for(self.picked):
            self.behind = [*(each["seq"] for each in self.leased), *self.picked]
            self.placement.reserve(row["seq"], self._demand(row["shape"]))

    def _demand(self, shape: str) -> Vector:
        """Resources that runs of this shape take of this worker."""
        return demand_of(shape).on(self.placement.capacity)


def _offer_all(room: _Room, rows: Iterable[Row]) -> Script[None]:
    for row in rows:
        if room.slots and not room.is_decided(row) and not (yield from room.leaves(row)):
            room.offer(row)


def _serve_by_rank(tx: Tx, room: _Room) -> Script[None]:
    """Serve the chain whose turn it is, one run at a time."""
    queue = room.queue
    heads = _Heads(room, dict(allot(queue.chains, room.slots, queue.slot_cost)))
    weights = {chain.id: chain.weight for chain in queue.chains}
    turns = [(chain.place, chain.id) for chain in queue.chains]
    heapq.heapify(turns)
    while turns and room.slots:
        place, chain = turns[0]
        row = yield from heads.next(chain)
        if row is None:
            heapq.heappop(turns)
            continue
        if (yield from room.leaves(row)):
            continue
        verdict = room.offer(row)
        if verdict is Verdict.TAKEN:
            step = cost_of(row["expected"], queue.share_of(row["shape"])) / weights[chain]
            heapq.heapreplace(turns, (place + step, chain))
        else:
            room.leave_out(row, verdict)
    tx.effects.chains.leave(heads.exhausted & queue.look.whole)


@dataclass(slots=True)
class _Heads:
    """The oldest runs of chains, read as they are needed."""

    room: _Room
    likely: dict[str, int]  # how many runs a chain will probably give
    exhausted: set[str] = field(default_factory=set)
    _rows: dict[str, deque[Row]] = field(default_factory=dict)
    _after: dict[str, int] = field(default_factory=dict)
    _empty: int = 0  # chains that had nothing

    def next(self, chain: str) -> Script[Row | None]:
        """The next run of a chain that may have a place; None: it has none."""
        while True:
            rows = self._rows.setdefault(chain, deque())
            while rows:
                row = rows.popleft()
                if row["shape"] not in self.room.full and not self.room.is_decided(row):
                    return row
            found = yield from self._read(chain)
            if not found:
                return None
            rows.extend(found)

    def _read(self, chain: str) -> Script[Rows]:
        queue, full = self.room.queue, self.room.full
        shapes = [shape for shape in queue.shapes if shape not in full]
        if not shapes or self._empty >= _MAX_EMPTY:
            return ()
        first = self._after.get(chain, queue.look.firsts[chain])
        limit = self.likely.pop(chain, 0) or self.room.slots
        found = yield query("chain_heads", chain=chain, first=first, shapes=shapes, limit=limit)
        if found:
            self._after[chain] = found[-1]["seq"] + 1
            return found
        self._empty += 1
        if not full:
            self.exhausted.add(chain)
        return ()


def _ends_at(began_at: int, row: Row) -> float:
    """When an attempt is over at the latest, else when it should be."""
    if row["timeout"] is not None:
        return _latest_end(began_at, row)
    return float(began_at + row["expected"] * _SECOND)


def _latest_end(began_at: int, row: Row) -> float:
    return float("inf") if row["timeout"] is None else float(began_at + row["timeout"])


@dataclass(frozen=True, slots=True)
class PoolReservation:
    """The reservation of a pool as a claim finds it, or that there is none."""

    pool: str
    session: str  # whose claim it is
    capacity: Vector  # of its worker
    seen: Row | None  # what is written down; None: nothing
    counts: bool  # whether it still counts

    @property
    def here(self) -> Reservation | None:
        """The reservation of this very worker."""
        if self.seen is None or not self.counts or self.seen["session"] != self.session:
            return None
        return Reservation(self.seen["seq"], demand_of(self.seen["shape"]).on(self.capacity))

    @property
    def kept_free(self) -> str | None:
        """The session whose worker it is."""
        return self.seen["session"] if self.seen is not None and self.counts else None

    def is_for(self, runs: Collection[int]) -> bool:
        """Whether it is for one of these."""
        return self.seen is not None and self.counts and self.seen["seq"] in runs

    def beside(self, leased: Collection[int]) -> Collection[int]:
        """Those attempts of this worker that it got while it was kept free."""
        if self.seen is None or self.here is None:
            return ()
        return set(leased) - set(from_json(self.seen["behind"]))


def pool_reservation(now: int, pool: str, session: Row) -> Script[PoolReservation]:
    rows = yield query("reservation", pool=pool, now=now)
    seen = rows[0] if rows else None
    counts = bool(seen is not None and seen["counts"])
    return PoolReservation(pool, session["id"], capacity_in(session), seen, counts)


def reserved_run(reservation: Reservation | None, free: Vector) -> Script[list[Row]]:
    """The run that this worker was kept free for, once there is room for it."""
    if reservation is None or not fits(reservation.demand, free):
        return []
    return list((yield query("reserved_run", seq=reservation.run)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reservation that a claim found, and the run it would keep the worker free for."""

    found: PoolReservation
    best: Row | None  # the first by rank that does not fit now
    behind: Collection[int] = ()  # the runs of the worker that go before it

    def keep(self, now: int, going: Collection[int]) -> Script[None]:
        """Keep this worker free for the best run, unless another one is kept free already.

        Runs that are `going` need nothing kept any more. A reservation is prolonged only while it
        is for the best run: else another one gets the next.
        """
        found, seen = self.found, self.found.seen
        is_used = found.is_for(going)
        if self.best is not None and (is_used or not found.counts):
            yield self._reserve(now, self.best, to_json(list(self.behind)))
        elif self.best is not None and seen is not None and self._is_half_over(now, seen):
            yield self._reserve(now, self.best, seen["behind"])
        elif seen is not None and is_used:
            yield query("drop_reservation", pool=found.pool, seq=seen["seq"])

    def _is_half_over(self, now: int, seen: Row) -> bool:
        """Whether half of a reservation here is over, for the run that is still the best."""
        here = self.found.here
        if here is None or self.best is None or here.run != self.best["seq"]:
            return False
        return bool(seen["expires_at"] - now < _LEASE // 2)

    def _reserve(self, now: int, best: Row, behind: str) -> Query:
        seen = self.found.seen
        return query(
            "reserve",
            pool=self.found.pool,
            seq=best["seq"],
            session=self.found.session,
            shape=best["shape"],
            behind=behind,
            expires_at=now + _LEASE,
            seen_seq=seen["seq"] if seen else None,
            seen_session=seen["session"] if seen else None,
        )


@dataclass(slots=True)
class _Neighbour:
    worker: Row
    room: Vector

    def could_take(self, shape: str) -> bool:
        labels = all_labels(self.worker["worker"], from_json(self.worker["labels"]))
        functions = from_json(self.worker["functions"])
        offers = offered_from(self.worker["offers"])
        return not unmet(shape, labels, functions, capacity_in(self.worker), offers)


@dataclass(slots=True)
class Neighbours:
    """Those with room now; they are read when there is a run that one of them might have."""

    now: int
    pool: str
    session: str  # whose claim it is
    kept_free: str | None  # the one whose room is for a large run
    left: dict[int, tuple[str, str]] = field(default_factory=dict)  # runs, and who is to have them
    _known: dict[str, _Neighbour] | None = None
    _takers: dict[str, list[str]] = field(default_factory=dict)  # by shape

    def gets(self, row: Row, free: Vector) -> Script[bool]:
        """Whether a run is left to one of them, as this worker has more room than it needs."""
        demand = demand_of(row["shape"])
        asks = demand.resources != ONE_SLOT and not demand.is_alone
        if not asks or self.now - row["queued_at"] >= _YOUNG or len(self.left) >= _MAX_LEFT:
            return False
        if self._known is None:
            self._known = yield from self._read()
        better = self._better(self._known, row["shape"], free)
        if better is None:
            return False
        self.left[row["seq"]] = row["id"], better
        found = self._known[better]
        found.room = minus(found.room, demand.resources)
        return True

    def _better(self, known: dict[str, _Neighbour], shape: str, free: Vector) -> str | None:
        if shape not in self._takers:
            self._takers[shape] = [key for key, each in known.items() if each.could_take(shape)]
        rooms = {key: known[key].room for key in self._takers[shape]}
        return tighter_fit(demand_of(shape).resources, free, rooms)

    def _read(self) -> Script[dict[str, _Neighbour]]:
        limit = _MAX_WORKERS + 1
        rows = yield query(
            "neighbours", pool=self.pool, session=self.session, now=self.now, limit=limit
        )
        found: dict[str, _Neighbour] = {}
        for row in rows:
            capacity = capacity_in(row)
            each = found.setdefault(row["id"], _Neighbour(row, capacity))
            if row["attempts"]:
                leased = times(row["attempts"], demand_of(row["shape"]).on(capacity))
                each.room = minus(each.room, leased)
        if len(found) > _MAX_WORKERS:
            return {}
        found.pop(self.kept_free or "", None)
        return found


def set_apart(runs: Iterable[Row]) -> Script[None]:
    """Let runs go alone from their next attempt on: they have lost workers again and again."""
    seqs: dict[str, list[int]] = defaultdict(list)
    for run in runs:
        seqs[alone(run["shape"])].append(run["seq"])
    if not seqs:
        return
    # Locked, if it is there: `forget_lone_shapes` must not drop it before these runs have it.
    yield Many("keep_shape", shape_rows(seqs))
    for shape in sorted(seqs):
        yield query("set_shape", shape=shape, seqs=seqs[shape])


def forget_lone_shapes() -> Script[None]:
    """Forget shapes of runs that went alone, so that claims need not place runs one by one."""
    shapes = [row["id"] for row in (yield query("all_shapes"))]
    lone = sorted(shape for shape in shapes if demand_of(shape).is_alone)
    if lone:
        yield lock("shapes", ids=lone)
        yield query("forget_shapes", ids=lone)
