"""One pool: its lines, its workers, and the reservation of the run that is too large for now.

After every event no waiting run fits any worker. So only a run that comes, and only a worker that
gains room, must be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf
from typing import TypeAlias

from rota.domain.placement import Placement, Reservation, Verdict
from rota.domain.resources import dominant_share, total
from rota.domain.shape import demand_of
from rota.domain.simulation.line import Entry, Sort
from rota.domain.simulation.lines import Lines
from rota.domain.simulation.model import SimRun, SimWorker
from rota.domain.simulation.rooms import Rooms, Station

Placed: TypeAlias = tuple[Entry, Station]


class Pool:
    """Places runs on workers; what it yields has started."""

    def __init__(
        self,
        workers: Collection[SimWorker],
        weights: Mapping[str, float],
        takes_keys: Callable[[Entry], bool],
    ) -> None:
        """`takes_keys` is asked before a run starts; one that gets none leaves the queue."""
        self._takes_keys = takes_keys
        self.lines = Lines(weights)
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
        """A run comes to the queue."""
        sort = entry.sort
        no_use = sort in self.lines.waiting  # one like it waits, so it fits nowhere
        self.lines.enter(entry)
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

    def serve(self, station: Station, now: float) -> Iterator[Placed]:
        """A worker that was closed may have room; it is open again at the end, if not reserved."""
        while True:
            if self._reserved is not None and self._reserved[1] is station:
                yield from self._serve_reserved(*self._reserved, now)
                return
            if not (station.is_open and self.lines.waiting):
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
        """The best-ranked run for a worker: one that fits, or that room may be kept for."""
        may_reserve = self._reserved is None
        able = self.rooms.could_take if may_reserve else self.rooms.has_room
        sorts = {sort for sort in self.lines.waiting if able(station, sort)}
        return self.lines.next(sorts) if sorts else None

    def _start(self, entry: Entry, station: Station, now: float) -> bool:
        if entry.keys and not self._takes_keys(entry):
            self.lines.leave(entry)
            return False
        self.lines.take(entry)
        entry.started_at = now
        station.take(entry)
        return True

    def _serve_reserved(self, entry: Entry, station: Station, now: float) -> Iterator[Placed]:
        """Start the run that the worker is reserved for, else what is not in its way."""
        if not station.has_room(entry.sort):
            yield from self._backfill(entry, station, self.lines.waiting, now)
            return
        self._reserved = None
        if self._start(entry, station, now):
            yield entry, station
        yield from self.serve(station, now)

    def _backfill(
        self, kept_for: Entry, station: Station, sorts: Iterable[Sort], now: float
    ) -> Iterator[Placed]:
        kept = Reservation(kept_for.seq, station.taken_by(kept_for.sort))
        placement = Placement(station.worker.capacity, now, station.held(), kept)
        going = {sort for sort in sorts if self.rooms.has_room(station, sort)}
        while station.is_open and (entry := self.lines.next(going)):
            sort = entry.sort
            demand = station.taken_by(sort)
            ends_at, latest_end = now + entry.expected, now + sort.timeout
            if placement.offer(entry.seq, demand, ends_at, latest_end) is not Verdict.TAKEN:
                going.discard(sort)
            elif self._start(entry, station, now):
                yield entry, station

    def _end_reservation_of(self, entry: Entry, now: float) -> Iterator[Placed]:
        """A run that started elsewhere needs no room kept."""
        if self._reserved is not None and self._reserved[0] is entry:
            station, self._reserved = self._reserved[1], None
            yield from self.serve(station, now)
