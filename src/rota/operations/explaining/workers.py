"""What keeps a run without a worker."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.amounts import format_amount
from rota.domain.resources import SLOTS, UNIT, fits, lacking, minus
from rota.domain.run import Reason
from rota.domain.shape import demand_of, unmet
from rota.operations.explaining.gates import WORKER
from rota.ports.records import Session

_LOOK = "rota worker list"


def worker_reason(pool: str, shape: str, sessions: Sequence[Session]) -> Reason:
    """Why no worker has taken a run of this shape, as they are now."""
    present = [session for session in sessions if not session.stopping]
    crew = [session for session in present if session.pool == pool]
    if not crew:
        others = sorted({session.pool for session in present})
        known = f" (workers serve {', '.join(others)})" if others else ""
        return Reason(WORKER, f"no worker serves pool {pool}{known}", action=_LOOK)
    lacks = [unmet(shape, s.labels, s.functions, s.capacity) for s in crew]
    if all(lacks):
        missing = "; ".join(sorted({", ".join(each) for each in lacks}))
        message = f"none of the {len(crew)} workers of pool {pool} fits: missing {missing}"
        return Reason(WORKER, message, action=_LOOK)
    fitting = [session for session, each in zip(crew, lacks, strict=True) if not each]
    taking = [session for session in fitting if not session.draining]
    if not taking:
        return _all_draining(sorted({session.worker for session in fitting}))
    return _room(shape, taking)


def _room(shape: str, taking: Sequence[Session]) -> Reason:
    demand = demand_of(shape).resources
    rooms = [minus(s.capacity, {SLOTS: s.held * UNIT, **s.used}) for s in taking]
    short = {name for room in rooms for name in lacking(demand, room)} - {SLOTS}
    if any(fits(demand, room) for room in rooms) or not short:
        used, slots = sum(s.held for s in taking), sum(s.slots for s in taking)
        message = f"{used} of {slots} slots are taken"
    else:
        needed = ", ".join(f"{format_amount(name, demand[name])} {name}" for name in sorted(short))
        message = f"no worker that could take it has room now: it needs {needed}"
    return Reason(WORKER, message, action="rota run list --active")


def _all_draining(workers: Sequence[str]) -> Reason:
    one, *others = workers
    message = f"worker {one} is draining"
    if others:
        message = f"all workers that fit are draining: {', '.join(workers)}"
    return Reason(WORKER, message, action=f"rota worker resume {one}")
