"""The workers of pools: what they offer, and whether one could ever take a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from rota.domain.gates import Admission, without_worker
from rota.domain.resources import Vector, capacity_of, plus, total
from rota.domain.shape import demand_of, unmet
from rota.store.rows import from_json, to_json
from rota.store.script import Row, Rows, Script, query

PoolShape: TypeAlias = tuple[str, str]  # a pool, and a shape that runs have in it
_MICROSECOND = timedelta(microseconds=1)
# A worker that is restarted is away for a moment: what only it can do stays in the queue.
_GRACE = timedelta(minutes=1) // _MICROSECOND
_TRUST = timedelta(seconds=1) // _MICROSECOND
_MAX_ENTRIES = 10_000


def capacity_in(session: Row) -> dict[str, int]:
    """All that the worker of a session has."""
    return capacity_of(session["slots"], from_json(session["resources"]))


def add_up(pool: str) -> Script[None]:
    """Write down what the workers of a pool offer together, now that some of them came or went.

    Whoever comes or goes at the same time waits for the pool, and then counts us too.
    """
    yield query("pool_to_change", pool=pool)
    offers = yield query("offers", pool=pool)
    totals = total(times(row["workers"], capacity_in(row)) for row in offers)
    yield query("set_totals", pool=pool, totals=to_json(totals))


def used_by(sessions: Rows) -> Script[dict[str, Vector]]:
    """Resources that the attempts of these sessions take of their workers, by session."""
    used: dict[str, Vector] = {}
    capacities = {session["id"]: capacity_in(session) for session in sessions}
    if not capacities:
        return used
    for row in (yield query("leased_shapes", sessions=capacities)):
        demand = demand_of(row["shape"]).on(capacities[row["session"]])
        taken = times(row["attempts"], demand)
        used[row["session"]] = plus(used.get(row["session"], {}), taken)
    return used


def times(count: int, vector: Vector) -> Vector:
    return {name: amount * count for name, amount in vector.items()}


@dataclass(frozen=True, slots=True)
class _Worker:
    labels: Mapping[str, str]
    functions: frozenset[str]
    capacity: Vector


class Crews:
    """Remembers which demands the workers of pools can meet.

    That a pool has a worker for some runs is believed for a second: one that leaves is missed a
    minute later anyway. That it has none is looked at each time, as one may just have come.
    """

    def __init__(self) -> None:
        self._met: dict[PoolShape, int] = {}  # until when that is believed of these demands

    def unfit(self, now: int, demands: Iterable[PoolShape]) -> Script[dict[PoolShape, Admission]]:
        """Which of these demands nobody could ever meet. What asks for nothing always fits.

        Nobody looks through the queue of an empty pool: runs that stay in it are in nobody's way,
        and need not all be moved when its first worker comes.
        """
        answers: dict[PoolShape, Admission] = {}
        for pool, shapes in sorted(self._unknown(now, demands).items()):
            rows = yield query("crew", pool=pool, since=now - _GRACE)
            crew = [_worker(row) for row in rows]
            for shape in shapes if crew else ():
                lack = _least_lack(shape, crew)
                if lack:
                    answers[pool, shape] = without_worker(pool, shape, lack)
                else:
                    self._met[pool, shape] = now + _TRUST
        return answers

    def _unknown(self, now: int, demands: Iterable[PoolShape]) -> dict[str, set[str]]:
        """Those to look at, by pool."""
        if len(self._met) > _MAX_ENTRIES:
            self._met.clear()
        shapes: dict[str, set[str]] = defaultdict(set)
        for pool, shape in demands:
            if shape and self._met.get((pool, shape), 0) <= now:
                shapes[pool].add(shape)
        return shapes


def _least_lack(shape: str, crew: Sequence[_Worker]) -> list[str]:
    """The lacks of the worker that comes nearest."""
    return min((unmet(shape, w.labels, w.functions, w.capacity) for w in crew), key=len)


def _worker(row: Row) -> _Worker:
    functions = frozenset(from_json(row["functions"]))
    return _Worker(from_json(row["labels"]), functions, capacity_in(row))
