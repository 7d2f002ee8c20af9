"""Pool: its chains, its workers with what is free, and the reservation of a large run.

After every event no waiting run fits any worker. So only a run that comes, and only a worker that
gains room, must be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from rota.domain.resources import SLOTS, UNIT, Vector, best_fit, dominant_share, fits, total
from rota.domain.shape import Occupied, Placement, Reservation, Verdict, demand_of, unmet
from rota.domain.simulation.chains import Entry, RankedChains, Sort
from rota.domain.simulation.model import SimRun, SimWorker

SAMPLE = 2  # different rooms of which the better fit is taken
_NO_ABILITY = -1

Room: TypeAlias = tuple[object, ...]  # workers of equal ability with equal free amounts


@dataclass(slots=True, eq=False)
class Station:
    """State of one worker."""

    worker: SimWorker
    ability: int  # equal for workers that can take the same runs
    free: dict[str, int]
    running: dict[int, Entry] = field(default_factory=dict)  # by sequence number
    room: list[Station] | None = None  # None: it is in none
    place: int = 0  # in its room

    @property
    def is_open(self) -> bool:
        return self.free.get(SLOTS, 0) >= UNIT

    def taken_by(self, sort: Sort) -> Vector:
        """Return what one such run takes here."""
        return sort.demand.on(self.worker.capacity)

    def has_room(self, sort: Sort) -> bool:
        """Return whether what is free is enough for such a run."""
        return fits(self.taken_by(sort), self.free)

    def take(self, entry: Entry) -> None:
        for name, amount in self.taken_by(entry.sort).items():
            self.free[name] = self.free.get(name, 0) - amount
        self.running[entry.seq] = entry

    def give_back(self, entry: Entry) -> None:
        for name, amount in self.taken_by(entry.sort).items():
            self.free[name] += amount
        del self.running[entry.seq]

    def occupied(self) -> list[Occupied]:
        return [
            Occupied(self.taken_by(entry.sort), entry.started_at + _longest(entry))
            for entry in self.running.values()
        ]


class Rooms:
    """Index of workers by what is free: equal ones stand in one room, so not all are asked."""

    def __init__(self, workers: Iterable[SimWorker]) -> None:
        self._abilities: dict[tuple[object, ...], int] = {}
        self._examples: list[Station] = []  # one of each ability
        self._able: dict[tuple[int, Sort], bool] = {}
        self._rooms: dict[Room, list[Station]] = {}
        self.stations = {worker.name: self._station(worker) for worker in workers}
        for station in self.stations.values():
            self.open(station)

    def could_take(self, station: Station, sort: Sort) -> bool:
        """Return whether such runs fit the worker when it is idle."""
        key = station.ability, sort
        able = self._able.get(key)
        if able is None:
            worker = station.worker
            able = self._able[key] = not unmet(
                sort.shape, worker.labels, worker.functions, worker.capacity, worker.offers
            )
        return able

    def has_room(self, station: Station, sort: Sort) -> bool:
        """Return whether such a run fits the worker now."""
        return station.has_room(sort) and self.could_take(station, sort)

    def anybody_could_take(self, sort: Sort) -> bool:
        return any(self.could_take(station, sort) for station in self._examples)

    def fitting(self, sort: Sort) -> Station | None:
        """Find the worker that such a run fits best now, of a bounded sample."""
        found: dict[Station, Vector] = {}
        for station in self._one_of_each():
            if self.has_room(station, sort):
                found[station] = station.free
                if len(found) == SAMPLE:
                    break
        return best_fit(sort.demand.resources, found) if len(found) > 1 else next(iter(found), None)

    def able(self, sort: Sort) -> Station | None:
        """Find some worker with a free slot that such a run would fit if it were idle."""
        return next((each for each in self._one_of_each() if self.could_take(each, sort)), None)

    def open(self, station: Station) -> None:
        """Add the worker to the index, if it has a slot."""
        if not station.is_open:
            return
        key: Room = (station.ability, *station.free.values())
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = []
        station.room, station.place = room, len(room)
        room.append(station)

    def close(self, station: Station) -> None:
        """Remove the worker from the index."""
        room = station.room
        if room is None:
            return
        last = room.pop()
        if last is not station:
            room[station.place] = last
            last.place = station.place
        if not room:
            del self._rooms[(station.ability, *station.free.values())]
        station.room = None

    def outside(self, worker: str) -> Station:
        """Return the station of a worker that is none of these, and takes no new runs."""
        return Station(SimWorker(worker, "", {}), _NO_ABILITY, {})

    def _one_of_each(self) -> Iterator[Station]:
        return (room[-1] for room in self._rooms.values())

    def _station(self, worker: SimWorker) -> Station:
        ability = (
            tuple(sorted(worker.labels.items())),
            frozenset(worker.functions),
            tuple(worker.capacity.items()),
            frozenset(worker.offers),
        )
        number = self._abilities.setdefault(ability, len(self._examples))
        station = Station(worker, number, dict(worker.capacity))
        if number == len(self._examples):
            self._examples.append(station)
        return station


def _longest(entry: Entry) -> float:
    """Return how long a run may take: to its timeout, else as long as is expected."""
    if entry.sort.timeout < inf:
        return entry.sort.timeout
    return inf if entry.run.expected is None else entry.run.expected


Placed: TypeAlias = tuple[Entry, Station]


class Pool:
    """Placement of runs on workers; it yields what has started."""

    def __init__(
        self,
        workers: Collection[SimWorker],
        weights: Mapping[str, float],
        takes_keys: Callable[[Entry], bool],
    ) -> None:
        """Set up a pool. `takes_keys` takes a run's keys at its start, else it leaves the queue."""
        self._takes_keys = takes_keys
        self.chains = RankedChains(weights)
        self.rooms = Rooms(workers)
        self._totals = total(worker.capacity for worker in workers)
        self._sorts: dict[tuple[str, float | None], Sort] = {}
        self._reserved: Placed | None = None

    def sort_of(self, run: SimRun) -> Sort:
        key = run.shape, run.timeout
        sort = self._sorts.get(key)
        if sort is None:
            demand = demand_of(run.shape)
            timeout = inf if run.timeout is None else run.timeout
            share = dominant_share(demand.resources, self._totals)
            sort = self._sorts[key] = Sort(run.shape, demand, timeout, share)
        return sort

    def arrive(self, entry: Entry, now: float) -> Iterator[Placed]:
        """Queue a run, and start it if a worker has room."""
        sort = entry.sort
        no_use = sort in self.chains.waiting  # one like it waits, so it fits nowhere
        self.chains.enter(entry)
        if no_use:
            return
        station = self.rooms.fitting(sort)
        if station is not None:
            self.rooms.close(station)
            is_started = self._start(entry, station, now)
            self.rooms.open(station)
            if is_started:
                yield entry, station
        elif self._reserved is not None:
            yield from self._backfill(*self._reserved, [sort], now)
        elif station := self.rooms.able(sort):
            self.rooms.close(station)
            self._reserved = entry, station

    def drop(self, entry: Entry, now: float) -> Iterator[Placed]:
        """Remove a run from the queue that may not start any more."""
        self.chains.leave(entry)
        yield from self._end_reservation_of(entry, now)

    def serve(self, station: Station, now: float) -> Iterator[Placed]:
        """Serve a closed worker that may have room; open it again at the end, if not reserved."""
        while True:
            if self._reserved is not None and self._reserved[1] is station:
                yield from self._serve_reserved(*self._reserved, now)
                return
            if not (station.is_open and self.chains.waiting):
                break
            entry = self._next_for(station)
            if entry is None:
                break
            if not station.has_room(entry.sort):
                self._reserved = entry, station
                continue
            if self._start(entry, station, now):
                yield entry, station
            yield from self._end_reservation_of(entry, now)
        self.rooms.open(station)

    def _next_for(self, station: Station) -> Entry | None:
        """Return the best-ranked run for a worker: one that fits, or that room may be kept for."""
        may_reserve = self._reserved is None
        able = self.rooms.could_take if may_reserve else self.rooms.has_room
        sorts = {sort for sort in self.chains.waiting if able(station, sort)}
        return self.chains.next(sorts) if sorts else None

    def _start(self, entry: Entry, station: Station, now: float) -> bool:
        if entry.keys and not self._takes_keys(entry):
            self.chains.leave(entry)
            return False
        self.chains.take(entry)
        entry.started_at = now
        station.take(entry)
        return True

    def _serve_reserved(self, entry: Entry, station: Station, now: float) -> Iterator[Placed]:
        """Start the run that the worker is reserved for, else what is not in its way."""
        if not station.has_room(entry.sort):
            yield from self._backfill(entry, station, self.chains.waiting, now)
            return
        self._reserved = None
        if self._start(entry, station, now):
            yield entry, station
        yield from self.serve(station, now)

    def _backfill(
        self, kept_for: Entry, station: Station, sorts: Iterable[Sort], now: float
    ) -> Iterator[Placed]:
        kept = Reservation(kept_for.seq, station.taken_by(kept_for.sort))
        placement = Placement(station.worker.capacity, now, station.occupied(), kept)
        going = {sort for sort in sorts if self.rooms.has_room(station, sort)}
        while station.is_open and (entry := self.chains.next(going)):
            sort = entry.sort
            demand = station.taken_by(sort)
            ends_at, latest_end = now + entry.expected, now + sort.timeout
            if placement.offer(entry.seq, demand, ends_at, latest_end) is not Verdict.TAKEN:
                going.discard(sort)
            elif self._start(entry, station, now):
                yield entry, station

    def _end_reservation_of(self, entry: Entry, now: float) -> Iterator[Placed]:
        """End the reservation of a run that started elsewhere."""
        if self._reserved is not None and self._reserved[0] is entry:
            station, self._reserved = self._reserved[1], None
            yield from self.serve(station, now)
