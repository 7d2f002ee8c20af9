"""Other workers of a pool that a run would fit better than the one that claims."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.domain.resources import ONE_SLOT, Vector, minus, tighter_fit
from rota.domain.shape import demand_of, unmet
from rota.store.rows import from_json
from rota.store.script import Row, Script, query
from rota.store.scripts.offers import capacity_in, times

# A hint brings the better worker within milliseconds. Whoever polls comes after two seconds, and
# must not find that a run is still to be left to somebody who never came.
_YOUNG = 1_000_000
_MAX_WORKERS = 100  # in a larger pool nothing is left to others
_MAX_LEFT = 100  # by one claim


@dataclass(slots=True)
class _Neighbour:
    worker: Row
    room: Vector

    def could_take(self, shape: str) -> bool:
        labels, functions = from_json(self.worker["labels"]), from_json(self.worker["functions"])
        return not unmet(shape, labels, functions, capacity_in(self.worker))


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
                held = times(row["attempts"], demand_of(row["shape"]).on(capacity))
                each.room = minus(each.room, held)
        if len(found) > _MAX_WORKERS:
            return {}
        found.pop(self.kept_free or "", None)
        return found
