"""What workers offer and what is in use of it, derived from live sessions and attempts."""

from __future__ import annotations

from rota.domain.resources import Vector, capacity_of, plus, total
from rota.domain.shape import demand_of
from rota.store.rows import from_json, to_json
from rota.store.script import Row, Rows, Script, query


def capacity_in(session: Row) -> dict[str, int]:
    """All that the worker of a session has."""
    return capacity_of(session["slots"], from_json(session["resources"]))


def add_up(pool: str) -> Script[None]:
    """Write down what the workers of a pool offer together, now that some of them came or went.

    Whoever comes or goes at the same time waits for the pool, and then counts us too.
    """
    yield query("hold_pool", pool=pool)
    offers = yield query("offers", pool=pool)
    totals = total(times(row["workers"], capacity_in(row)) for row in offers)
    yield query("set_totals", pool=pool, totals=to_json(totals))


def used_by(sessions: Rows) -> Script[dict[str, Vector]]:
    """What the attempts of these sessions take of their workers, by session."""
    used: dict[str, Vector] = {}
    capacities = {session["id"]: capacity_in(session) for session in sessions}
    if not capacities:
        return used
    for row in (yield query("held_shapes", sessions=capacities)):
        demand = demand_of(row["shape"]).on(capacities[row["session"]])
        taken = times(row["attempts"], demand)
        used[row["session"]] = plus(used.get(row["session"], {}), taken)
    return used


def times(count: int, vector: Vector) -> Vector:
    return {name: amount * count for name, amount in vector.items()}
