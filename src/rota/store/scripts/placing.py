"""Which queued runs a worker gets where runs ask for resources: placed one by one, as they fit."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rota.domain.order import allot, cost_of
from rota.domain.placement import Held, Placement, Verdict
from rota.domain.resources import ONE_SLOT, Vector, fits
from rota.domain.shape import demand_of
from rota.store.script import Row, Rows, Script, query
from rota.store.scripts.neighbours import Neighbours
from rota.store.scripts.picking import Picked, Queue, named_runs, oldest_runs
from rota.store.scripts.reserving import Standing, Wanted, reserved_run, standing
from rota.store.tx import Tx

# A claim gives up beyond these: what it does not find gets a place as the oldest, or by another.
_MAX_KEPT = 16  # runs of one shape that would be in the way of a reservation
_MAX_EMPTY = 50  # lines in which nothing fits
_SECOND = 1_000_000


def asks_for_resources(shape: str) -> bool:
    """Whether runs of this shape take more than a slot."""
    demand = demand_of(shape)
    return demand.is_alone or demand.resources != ONE_SLOT


def place(tx: Tx, session: Row, queue: Queue) -> Script[tuple[Picked, Wanted]]:
    """Runs that fit what the worker has left, in order of service; and what is to be reserved."""
    held = yield query("held_demands", session=session["id"])
    found = yield from standing(tx.now, queue.pool, session)
    others = Neighbours(tx.now, queue.pool, session["id"], found.kept_free)
    room = _Room(tx.now, queue, found, _placement(tx.now, held, found), held, others)
    yield from _offer_all(room, (yield from reserved_run(found.here, room.placement.free)))
    yield from _offer_all(room, (yield from oldest_runs(queue, room.fitting_shapes())))
    yield from _offer_all(room, (yield from named_runs(queue, room.slots)))
    yield from _serve_by_rank(tx, room)
    tx.effects.left.update(others.left.values())
    return room.picked, Wanted(found, room.best, room.behind)


def _placement(now: int, held: Rows, found: Standing) -> Placement:
    """What the worker has and holds. Of who came beside a reservation only a timeout counts."""
    beside = found.beside([row["seq"] for row in held])
    ends = [
        (_latest_end if row["seq"] in beside else _ends_at)(row["began_at"], row) for row in held
    ]
    demands = [demand_of(row["shape"]).on(found.capacity) for row in held]
    takers = [Held(demand, end) for demand, end in zip(demands, ends, strict=True)]
    return Placement(found.capacity, now, takers, found.here)


@dataclass(slots=True)
class _Room:
    """What a worker has left, and who got a place in it."""

    now: int
    queue: Queue
    found: Standing
    placement: Placement
    held: Rows
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
            if self.best is None:
                self.best = row
                self._keep_room_for(row)
        self._kept[row["shape"]] += 1
        if self._kept[row["shape"]] >= _MAX_KEPT:
            self.full.add(row["shape"])

    def _keep_room_for(self, row: Row) -> None:
        """From now on, if nothing else is kept free in this pool."""
        if not self.found.counts or self.found.is_for(self.picked):
            self.behind = [*(each["seq"] for each in self.held), *self.picked]
            self.placement.reserve(row["seq"], self._demand(row["shape"]))

    def _demand(self, shape: str) -> Vector:
        """What runs of this shape take of this worker."""
        return demand_of(shape).on(self.placement.capacity)


def _offer_all(room: _Room, rows: Iterable[Row]) -> Script[None]:
    for row in rows:
        if room.slots and not room.is_decided(row) and not (yield from room.leaves(row)):
            room.offer(row)


def _serve_by_rank(tx: Tx, room: _Room) -> Script[None]:
    """Serve the line whose turn it is, one run at a time."""
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
    tx.effects.lines.leave(heads.exhausted & queue.look.whole)


@dataclass(slots=True)
class _Heads:
    """The oldest runs of lines, read as they are needed."""

    room: _Room
    likely: dict[str, int]  # how many runs a line will probably give
    exhausted: set[str] = field(default_factory=set)
    _rows: dict[str, deque[Row]] = field(default_factory=dict)
    _after: dict[str, int] = field(default_factory=dict)
    _empty: int = 0  # lines that had nothing

    def next(self, chain: str) -> Script[Row | None]:
        """The next run of a line that may have a place; None: it has none."""
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
