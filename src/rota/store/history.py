"""Events, and counts of all there is."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.ids import instant
from rota.ports.records import Counts, Event
from rota.store.rows import event_from
from rota.store.script import Many, Script, query
from rota.store.tx import Tx


def events(after: int, limit: int, *, ids: Sequence[str] = ()) -> Script[list[Event]]:
    if ids:
        rows = yield query("select_events_of", after=after, limit=limit, ids=ids)
    else:
        rows = yield query("select_events", after=after, limit=limit)
    return [event_from(row) for row in rows]


def names(ids: Sequence[str]) -> Script[dict[str, str]]:
    rows = yield query("select_names", ids=ids)
    return {row["id"]: row["name"] for row in rows}


def counts() -> Script[Counts]:
    active = yield query("count_active")
    oldest = yield query("oldest_queued")
    live = yield query("count_sessions")
    tallies = yield query("select_tallies")
    delays = yield query("select_start_delays")
    [last] = yield query("last_event")
    return Counts(
        runs={(row["state"], row["pool"]): row["count"] for row in active},
        oldest_queued_at={row["pool"]: instant(row["queued_at"]) for row in oldest},
        sessions={("alive", row["pool"]): row["count"] for row in live},
        finished={(row["job"], row["state"]): row["count"] for row in tallies},
        start_delays={(d["pool"], d["up_to"]): (d["count"], d["seconds"]) for d in delays},
        last_event=last["seq"] or 0,
    )


def check(tx: Tx) -> Script[None]:
    """Write something: a store that can be read may still refuse that."""
    yield Many("set_meta", [("checked_at", str(tx.now))])
