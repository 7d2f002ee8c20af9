"""What keeps a run without a worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.domain.amounts import format_amount
from rota.domain.resources import SLOTS, UNIT, fits, lacking, minus
from rota.domain.run import Reason, Run
from rota.domain.shape import demand_of, unmet
from rota.operations.explaining.gates import WORKER
from rota.ports.records import Session

_LOOK = "rota worker list"


def worker_reason(run: Run, shape: str, sessions: Sequence[Session]) -> Reason:
    """Why no worker of its pool has taken a run of this shape, as they are now."""
    pool = run.pool
    present = [session for session in sessions if not session.stopping]
    crew = [session for session in present if session.pool == pool]
    if not crew:
        return Reason(WORKER, "it waits for a worker", action=_LOOK)
    lacks = [unmet(shape, s.labels, s.functions, s.capacity) for s in crew]
    if all(lacks):
        missing = "; ".join(sorted({", ".join(each) for each in lacks}))
        message = f"none of the {len(crew)} workers of pool {pool} fits: missing {missing}"
        return Reason(WORKER, message, action=_LOOK)
    fitting = [session for session, each in zip(crew, lacks, strict=True) if not each]
    taking = [session for session in fitting if not session.draining]
    if not taking:
        return _all_draining(sorted({session.worker for session in fitting}))
    return Reason(WORKER, _room(run, shape, taking), action="rota run list --active")


def no_worker(pool: str, served: Collection[str]) -> Reason:
    """Why a run of an empty pool waits."""
    others = f" (workers serve {', '.join(sorted(served))})" if served else ""
    message = f"no worker serves pool {pool}{others}"
    return Reason(WORKER, message, key=f"no_worker:{pool}", action=_LOOK)


def _room(run: Run, shape: str, taking: Sequence[Session]) -> str:
    demand = demand_of(shape).resources
    if run.is_alone and all(session.held for session in taking):
        lost = "a worker" if run.losses == 1 else f"{run.losses} workers"
        return f"it goes alone after losing {lost}: it waits until a worker is empty"
    used = [{SLOTS: s.held * UNIT, **s.used} for s in taking]
    rooms = [minus(s.capacity, each) for s, each in zip(taking, used, strict=True)]
    short = {name for room in rooms for name in lacking(demand, room)} - {SLOTS}
    if any(fits(demand, room) for room in rooms) or not short:
        taken, slots = sum(each[SLOTS] for each in used) // UNIT, sum(s.slots for s in taking)
        return f"{taken} of {slots} slots are taken"
    needed = ", ".join(f"{format_amount(name, demand[name])} {name}" for name in sorted(short))
    return f"no worker that could take it has room now: it needs {needed}"


def _all_draining(workers: Sequence[str]) -> Reason:
    one, *others = workers
    message = f"worker {one} is draining"
    if others:
        message = f"all workers that fit are draining: {', '.join(workers)}"
    return Reason(WORKER, message, action=f"rota worker resume {one}")
