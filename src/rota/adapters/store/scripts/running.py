"""What happens to runs by a person's hand, and by the sweep."""

from __future__ import annotations

from collections.abc import Sequence

from rota.adapters.store.rows import to_json
from rota.adapters.store.script import Many, Script, query
from rota.adapters.store.scripts.queueing import (
    Effects,
    cancel,
    count_ends,
    end_waiting,
    record,
    release_jobs,
)
from rota.adapters.store.scripts.rules import RulesBook
from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import RunId
from rota.domain.states import RunState, is_final
from rota.ports.store import Released, StoredChunk, Wakes
from rota.ports.work import Fence, Progress

_RESOLUTION_CAUSES = {RunState.COMPLETED: "resolved", RunState.FAILED: "resolved", RunState.SCHEDULED: ""}


def cancel_runs(
    now: int, runs: Sequence[RunId], actor: str, book: RulesBook
) -> Script[tuple[frozenset[RunId], Wakes]]:
    """Cancel what waits, ask what is live to stop."""
    effects = Effects()
    cancelled = yield from cancel(now, runs, effects, actor)
    jobs = yield query("runs_to_change", ids=cancelled)
    yield from release_jobs(now, {row["job_id"] for row in jobs}, book, effects)
    return frozenset(cancelled), effects.wakes()


def resolve(now: int, run: RunId, state: RunState, actor: str, book: RulesBook) -> Script[Wakes]:
    """A person ends the doubt about an UNKNOWN run."""
    rows = yield query("runs_to_change", ids=[run])
    if not rows:
        raise NotFound(f"no run {run}")
    if rows[0]["state"] != RunState.UNKNOWN:
        raise Conflict(f"run {run} is {rows[0]['state'].lower()}, not unknown", code="not_unknown")
    is_final_now = is_final(state)
    values = (
        state,
        _RESOLUTION_CAUSES[state],
        None if is_final_now else now,
        now if is_final_now else None,
        int(state is RunState.FAILED),
        run,
    )
    yield Many("resolve_run", [values])
    if is_final_now:
        yield from count_ends([(rows[0]["job"], state)])
    yield record("run.resolved", now, [run], actor=actor, state=state)
    effects = Effects(times=not is_final_now)
    yield from release_jobs(now, [rows[0]["job_id"]], book, effects)
    return effects.wakes()


def sweep(now: int, limit: int, book: RulesBook) -> Script[Released]:
    """End what passed its deadline and release what a lost wake-up forgot."""
    effects = Effects()
    overdue = yield query("overdue_runs", now=now, limit=limit)
    if overdue:
        ends = [(RunId(row["id"]), RunState.TIMED_OUT, "deadline") for row in overdue]
        yield from end_waiting(now, ends, effects, "scheduler")
    keys = yield query("waited_keys", limit=limit)
    jobs = {row["key"].split(":", 1)[1] for row in keys} | {row["job_id"] for row in overdue}
    released = yield from release_jobs(now, jobs, book, effects)
    return Released(released + len(overdue), effects.wakes())


def record_progress(session: str, items: Sequence[Progress]) -> Script[None]:
    """How far runs are; what is stale is ignored."""
    values = [
        (
            to_json({"done": item.done, "total": item.total, "message": item.message}),
            item.run,
            item.attempt,
            session,
        )
        for item in items
    ]
    yield Many("set_progress", values, exactly=False)


def add_chunks(session: str, chunks: Sequence[tuple[Fence, StoredChunk]]) -> Script[tuple[Fence, ...]]:
    """Record output that is in the blob store, for attempts the session still holds."""
    rows = yield query("live_fences", ids={fence.run for fence, _ in chunks}, session=session)
    live = {Fence(row["id"], row["attempt"]) for row in rows}
    values = [
        (
            fence.run,
            fence.attempt,
            chunk.meta.number,
            session,
            chunk.meta.first_line,
            chunk.meta.lines,
            chunk.meta.bytes,
            chunk.meta.first_at,
            chunk.meta.last_at,
            chunk.key,
        )
        for fence, chunk in chunks
        if fence in live
    ]
    if values:
        yield Many("insert_chunk", values, exactly=False)
    return tuple({fence for fence, _ in chunks if fence not in live})
