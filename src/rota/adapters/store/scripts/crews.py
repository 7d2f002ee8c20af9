"""The crews of pools: whether a pool has a worker that could ever take a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from rota.adapters.store.rows import from_json
from rota.adapters.store.script import Row, Script, query
from rota.adapters.store.scripts.offers import capacity_in
from rota.domain.gates import Admission, without_worker
from rota.domain.resources import Vector
from rota.domain.shape import unmet

PoolShape: TypeAlias = tuple[str, str]  # a pool, and a shape that runs have in it

# A worker that is restarted is away for a moment: what only it can do stays in the queue.
_GRACE = timedelta(minutes=1) // timedelta(microseconds=1)
_MAX_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class _Worker:
    labels: Mapping[str, str]
    functions: frozenset[str]
    capacity: Vector


@dataclass(frozen=True, slots=True)
class _Crew:
    """What the workers of a pool can do."""

    pool: str
    workers: tuple[_Worker, ...]
    looked_at: int
    _answers: dict[str, Admission | None] = field(default_factory=dict)  # by shape

    def answer(self, shape: str) -> Admission | None:
        """Why runs of this shape wait; None: somebody could take them, or the pool is empty.

        Nobody looks through the queue of an empty pool: runs that stay in it are in nobody's way,
        and need not all be moved when its first worker comes.
        """
        if shape not in self._answers:
            lacks = [unmet(shape, w.labels, w.functions, w.capacity) for w in self.workers]
            nearest = min(lacks, key=len, default=[])
            self._answers[shape] = without_worker(self.pool, shape, nearest) if nearest else None
        return self._answers[shape]


class Crews:
    """What a store remembers of the workers of pools, for `trust` microseconds.

    Where it is wrong, a run waits in the wrong place until the next look at those that wait there.
    """

    def __init__(self, trust: int = 0) -> None:
        self._trust = trust
        self._crews: dict[str, _Crew] = {}

    def unfit(self, now: int, demands: Iterable[PoolShape]) -> Script[dict[PoolShape, Admission]]:
        """Which of these demands nobody could ever meet. What asks for nothing always fits."""
        shapes: dict[str, set[str]] = defaultdict(set)
        for pool, shape in demands:
            if shape:
                shapes[pool].add(shape)
        answers: dict[PoolShape, Admission] = {}
        for pool in sorted(shapes):
            crew = yield from self._crew(now, pool)
            for shape in shapes[pool]:
                if (admission := crew.answer(shape)) is not None:
                    answers[pool, shape] = admission
        return answers

    def _crew(self, now: int, pool: str) -> Script[_Crew]:
        known = self._crews.get(pool)
        if known is not None and known.looked_at < now < known.looked_at + self._trust:
            return known
        rows = yield query("crew", pool=pool, since=now - _GRACE)
        crew = _Crew(pool, tuple(_worker(row) for row in rows), now)
        if len(self._crews) > _MAX_ENTRIES:
            self._crews.clear()
        self._crews[pool] = crew
        return crew


def _worker(row: Row) -> _Worker:
    functions = frozenset(from_json(row["functions"]))
    return _Worker(from_json(row["labels"]), functions, capacity_in(row))
