"""Workers that shall finish what they hold and get nothing new, by name: it outlives a restart."""

from __future__ import annotations

from rota.domain.errors import NotFound
from rota.ports.records import Wakes
from rota.store.script import Row, Script, lock, query
from rota.store.scripts.effects import record

_MAX_PRESENCES = 100


def drain(now: int, worker: str, actor: str) -> Script[None]:
    """From here on no claim gives it anything."""
    drained = yield query("drain_worker", name=worker, actor=actor, now=now)
    presences = yield from _presences(worker)
    yield lock("sessions", ids=sorted(_live(presences)))  # a claim under way comes before
    if drained:
        yield record("worker.drained", now, _live(presences), actor=actor, workers=[worker])


def undrain(now: int, worker: str, actor: str) -> Script[Wakes]:
    """It may have work again; its pools are told."""
    presences = yield from _presences(worker)
    undrained = yield query("undrain_worker", name=worker)
    if not undrained:
        return Wakes()
    yield record("worker.undrained", now, _live(presences), actor=actor, workers=[worker])
    return Wakes(pools={row["pool"]: () for row in presences if row["alive"]})


def _presences(worker: str) -> Script[list[Row]]:
    rows = yield query("presences_of_worker", worker=worker, limit=_MAX_PRESENCES)
    if not rows:
        raise NotFound(
            f"no worker is named {worker}",
            code="worker_not_found",
            hint="rota worker list --all shows the names",
        )
    return list(rows)


def _live(presences: list[Row]) -> list[str]:
    return [row["id"] for row in presences if row["alive"]]
