"""The crews of pools: whether a pool has a worker that could ever take a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from rota.domain.gates import Admission, without_worker
from rota.domain.resources import Vector
from rota.domain.shape import unmet
from rota.store.rows import from_json
from rota.store.script import Row, Script, query
from rota.store.scripts.offers import capacity_in

PoolShape: TypeAlias = tuple[str, str]  # a pool, and a shape that runs have in it

_MICROSECOND = timedelta(microseconds=1)
# A worker that is restarted is away for a moment: what only it can do stays in the queue.
_GRACE = timedelta(minutes=1) // _MICROSECOND
_TRUST = timedelta(seconds=1) // _MICROSECOND
_MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class _Worker:
    labels: Mapping[str, str]
    functions: frozenset[str]
    capacity: Vector


class Crews:
    """What a store remembers of the workers of pools.

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
    """What the worker lacks that comes nearest."""
    return min((unmet(shape, w.labels, w.functions, w.capacity) for w in crew), key=len)


def _worker(row: Row) -> _Worker:
    functions = frozenset(from_json(row["functions"]))
    return _Worker(from_json(row["labels"]), functions, capacity_in(row))
