"""Workers that shall finish what they hold and get nothing new, by name: it outlives a restart."""

from __future__ import annotations

from rota.domain.errors import NotFound
from rota.store.script import Row, Script, lock, query
from rota.store.tx import Tx

_MAX_PRESENCES = 100


def drain(tx: Tx, name: str, *, actor: str) -> Script[None]:
    """From here on no claim gives it anything."""
    drained = yield query("drain_worker", name=name, actor=actor, now=tx.now)
    presences = yield from _presences(name)
    yield lock("sessions", ids=sorted(_live(presences)))  # a claim under way comes before
    if drained:
        yield tx.record("worker.drained", _live(presences), actor=actor, workers=[name])


def undrain(tx: Tx, name: str, *, actor: str) -> Script[None]:
    """It may have work again; its pools are told."""
    presences = yield from _presences(name)
    undrained = yield query("undrain_worker", name=name)
    if not undrained:
        return
    yield tx.record("worker.undrained", _live(presences), actor=actor, workers=[name])
    tx.effects.reopened.update(row["pool"] for row in presences if row["alive"])


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
