"""Runs and their attempts, their output, and the history of events."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rota.domain.errors import Conflict, NotFound
from rota.domain.gates import held, hold_key
from rota.domain.ids import JobId, RunId, instant
from rota.domain.run import Attempt, LateResult, Run
from rota.domain.spec import DEFAULT_PROJECT
from rota.domain.states import FINAL_STATES, LEASED_STATES, WAITING_STATES, RunState
from rota.ports.records import ArrivedOutput, Counts, Event, RunQuery, StoredChunk
from rota.ports.work import ChunkMeta, Fence, Progress, RemoteHandle
from rota.store.chains import ChainKey, chain_of
from rota.store.gates import lock_gates_of_jobs
from rota.store.releases import release_jobs
from rota.store.rows import (
    attempt_from,
    event_from,
    late_result_from,
    like_pattern,
    optional_micros,
    project_filter,
    reasons_to,
    run_from,
    to_json,
)
from rota.store.script import Many, Query, Row, Script, query
from rota.store.transactions import of_each, together
from rota.store.tx import Tx
from rota.store.waits import cancel, pass_gates_again

_NO_POOL = ("",)  # one value, as lists of one are looked for fastest in SQLite
_LOOKED_AT = 10  # times as many runs as are wanted: most may have been skipped


def cancel_all(tx: Tx, runs: Sequence[RunId], *, actor: str) -> Script[frozenset[RunId]]:
    """Cancel what waits, ask what is live to stop."""
    yield from lock_gates_of_jobs(runs)
    concerned = yield from cancel(tx, runs, actor)
    yield from release_jobs(tx, set(concerned.values()))
    return frozenset(concerned)


def record_progress(tx: Tx, session: str, items: Sequence[Progress]) -> Script[tuple[Fence, ...]]:
    """How far runs are; returns those of which the session has nothing to tell."""
    rows = yield query("runs_under_way", ids={item.run for item in items}, session=session)
    own = {Fence(row["id"], row["attempt"]) for row in rows}
    values = [
        (
            to_json({"done": item.done, "total": item.total, "message": item.message}),
            item.run,
            item.number,
            session,
        )
        for item in sorted(items, key=lambda item: item.run)
        if item.fence in own
    ]
    if values:
        yield Many("set_progress", values, exactly=False)
    return tuple(dict.fromkeys(item.fence for item in items if item.fence not in own))


def keep_handles(tx: Tx, session: str, items: Sequence[RemoteHandle]) -> Script[tuple[Fence, ...]]:
    """Keep the remote handles of attempts; returns those that the session has not leased."""
    # Locked: an attempt that is lost meanwhile must not keep what the next one would not know of.
    rows = yield query("runs_to_change", ids={item.run for item in items})
    own = {
        Fence(row["id"], row["attempt"])
        for row in rows
        if row["session"] == session and row["state"] in LEASED_STATES and not row["barred"]
    }
    latest = {item.fence: item.handle for item in items if item.fence in own}
    by_run = sorted(latest.items(), key=lambda kept: kept[0].run)  # the order of locks
    values = [(handle or None, fence.run) for fence, handle in by_run]
    if values:
        yield Many("set_handle", values)
    return tuple(dict.fromkeys(item.fence for item in items if item.fence not in own))


def hold(tx: Tx, run: RunId, *, actor: str) -> Script[None]:
    """A waiting run goes nowhere from here on; others get its slot, not its place in its job."""
    row = yield from _lock_waiting(run)
    if row["blocked_on"] == hold_key(run):
        return
    admission = held(run, actor)
    yield Many("hold_run", [(admission.blocked_on, reasons_to(admission.reasons), run)])
    tx.record_each("run.held", [row], actor=actor)
    if row["state"] != RunState.BLOCKED:
        tx.record_each("run.blocked", [row], actor=actor)
    tx.effects.keys = row["keys"] is not None
    if row["state"] == RunState.QUEUED:
        tx.effects.chains.leave([row["chain"]])
        yield from release_jobs(tx, [row["job_id"]])


def let_go(tx: Tx, run: RunId, *, actor: str) -> Script[None]:
    """The end of such a hold."""
    row = yield from _lock_waiting(run)
    if row["blocked_on"] != hold_key(run):
        raise Conflict(
            f"nobody holds run {run}", code="run_not_held", hint=f"rota run show {run} tells why"
        )
    tx.record_each("run.let_go", [row], actor=actor)
    yield from pass_gates_again(tx, [row], actor=actor)


def set_priority(tx: Tx, run: RunId, priority: int, *, actor: str) -> Script[None]:
    """A waiting run waits in another chain, where it is as old as before."""
    row = yield from _lock_waiting(run)
    before = chain_of(row)
    chain = ChainKey(before.pool, priority, before.share)
    yield Many("set_priority", [(priority, chain.id, run)])
    told = {"priority": priority, "before": before.priority}
    tx.record_each("run.prioritised", [row], actor=actor, **told)
    tx.effects.keys = row["keys"] is not None  # who waits for them goes by priority
    if row["state"] == RunState.QUEUED:
        tx.effects.chains.leave([before.id])
        tx.effects.queued(chain, run, row["seq"])


def _lock_waiting(run: RunId) -> Script[Row]:
    """A run that waits, locked with the gates of its job: whoever claims it waits, or was first."""
    yield from lock_gates_of_jobs([run])
    rows = yield query("waiting_runs_to_change", ids=[run])
    if not rows:
        raise NotFound(f"no run {run}", code="run_not_found", hint="rota run list shows them")
    if rows[0]["state"] not in WAITING_STATES:
        raise Conflict(
            f"run {run} is {rows[0]['state'].lower()}: it does not wait any more",
            code="run_not_waiting",
            hint=f"rota run show {run}",
        )
    return rows[0]


def find(wanted: RunQuery, /) -> Script[list[Run]]:
    states = yield from _states(wanted)
    if isinstance(wanted.project, tuple) and not _is_active(wanted):
        return (yield from _find_in_each(wanted, wanted.project, states))
    rows = yield _runs_query(wanted, states)
    return [run_from(row) for row in rows]


def _find_in_each(
    wanted: RunQuery, projects: Sequence[str], states: Mapping[str, Any]
) -> Script[list[Run]]:
    """Runs of several projects, each by its index: others may have any number in between."""
    found: list[Run] = []
    for project in projects:
        rows = yield _runs_query(replace(wanted, project=project), states)
        found += map(run_from, rows)
    return sorted(found, key=lambda run: run.seq, reverse=True)[: wanted.limit]


def _is_active(wanted: RunQuery) -> bool:
    return bool(wanted.states) and FINAL_STATES.isdisjoint(wanted.states)


def _states(wanted: RunQuery) -> Script[Mapping[str, Any]]:
    """Which states, and where the queued ones of them: some may count as blocked."""
    states = set(wanted.states)
    kept = {"states": states, "queued": "anywhere", "unserved": _NO_POOL}
    if wanted.served is None or (RunState.QUEUED in states) == (RunState.BLOCKED in states):
        return kept
    rows = yield query("waiting_pools")
    unserved = {row["pool"] for row in rows}.difference(wanted.served)
    if not unserved:
        return kept
    if RunState.QUEUED in states:
        return {**kept, "queued": "served", "unserved": unserved}
    return {"states": states | {RunState.QUEUED}, "queued": "unserved", "unserved": unserved}


def _runs_query(wanted: RunQuery, states: Mapping[str, Any]) -> Query:
    """Each way to look has its own statement, so that an index leads."""
    if wanted.ids is not None and not isinstance(wanted.project, str):
        among = project_filter(wanted.project)
        return query("select_runs_by_id_in_projects", ids=wanted.ids, **among)
    if wanted.ids is not None:
        return query("select_runs_by_id", ids=wanted.ids, project=wanted.project)
    if wanted.id_prefix is not None:
        return query(
            "select_runs_by_prefix",
            id_from=wanted.id_prefix,
            id_to=wanted.id_prefix + "\x7f",  # sorts after all that an id can go on with
            project=wanted.project,
            limit=wanted.limit,
        )
    filters = {
        "before_seq": sys.maxsize if wanted.before_seq is None else wanted.before_seq,
        **states,
        "trigger": wanted.trigger,
        "since": optional_micros(wanted.since),
        "until": optional_micros(wanted.until),
        "creator": wanted.created_by,
        "limit": wanted.limit,
    }
    job_like = like_pattern(wanted.job_like)
    any_state = int(not wanted.states)
    if wanted.backfill is not None:
        return query(
            "select_runs_of_backfill",
            backfill=wanted.backfill,
            job=wanted.job_id,
            job_like=job_like,
            any_state=any_state,
            **filters,
            **project_filter(wanted.project),
        )
    if wanted.cart is not None:
        return query(
            "select_runs_of_cart",
            cart=wanted.cart,
            project=wanted.project,
            job=wanted.job_id,
            job_like=job_like,
            any_state=any_state,
            **filters,
        )
    if isinstance(wanted.project, str):
        return _project_query(wanted, {"project": wanted.project, **filters}, job_like, any_state)
    filters |= project_filter(wanted.project)
    if _is_active(wanted):
        return query("select_active_runs_of_projects", job_like=job_like, **filters)
    return query("select_runs_of_projects", job_like=job_like, any_state=any_state, **filters)


def _project_query(
    wanted: RunQuery, filters: dict[str, Any], job_like: str | None, any_state: int
) -> Query:
    # PostgreSQL has no index of the runs of `default`: each claim and each end would pay for it.
    is_default = wanted.project == DEFAULT_PROJECT
    if _is_active(wanted):
        name = "select_active_runs" if is_default else "select_active_runs_of_project"
        return query(name, job=wanted.job_id, job_like=job_like, **filters)
    if wanted.job_id is not None:
        return query("select_runs_of_job", job=wanted.job_id, any_state=any_state, **filters)
    name = "select_runs" if is_default else "select_runs_of_project"
    return query(name, job_like=job_like, any_state=any_state, **filters)


def attempts(run: RunId) -> Script[list[Attempt]]:
    """Earlier attempts, and the latest one, which its run carries."""
    rows = yield query("select_attempts", run=run)
    earlier = [attempt_from(row) for row in rows]
    latest = yield query("latest_attempt", run=run)
    # A run that is to be tried again has its latest attempt in both places.
    if latest and latest[0]["number"] > len(earlier):
        earlier.append(attempt_from(latest[0]))
    return earlier


def late_results(run: RunId) -> Script[list[LateResult]]:
    rows = yield query("select_late_results", run=run)
    return [late_result_from(row) for row in rows]


def any_queued(runs: Sequence[str]) -> Script[bool]:
    rows = yield query("any_queued", ids=runs)
    return bool(rows)


def start_delays(job: JobId, limit: int) -> Script[list[float]]:
    rows = yield query("latest_delays", job=job, limit=limit, looked_at=limit * _LOOKED_AT)
    return [row["delay"] / 1e6 for row in rows]


def runs_by_id(queries: Sequence[RunQuery]) -> Script[list[list[Run]]]:
    """Runs that each of these finds by id; all in one project."""
    wanted = [each.ids or () for each in queries]
    found = yield from find(replace(queries[0], ids=together(wanted)))
    return of_each({run.id: run for run in found}, wanted)


def events(
    after: int, limit: int, *, ids: Sequence[str] = (), projects: Collection[str] | None = None
) -> Script[list[Event]]:
    place = {"after": after, "limit": limit}
    if projects is not None:
        rows = yield query("select_events_in", **place, **_named(ids), **_within(projects))
    elif ids:
        rows = yield query("select_events_of", **place, ids=ids)
    else:
        rows = yield query("select_events", **place)
    return [event_from(row) for row in rows]


def position_before_latest(
    count: int, *, ids: Sequence[str] = (), projects: Collection[str] | None = None
) -> Script[int]:
    if projects is None:
        [first] = yield query("first_of_latest_events", count=count, **_named(ids))
    else:
        among = _named(ids) | _within(projects)
        [first] = yield query("first_of_latest_events_in", count=count, **among)
    return 0 if first["seq"] is None else first["seq"] - 1


def _named(ids: Sequence[str]) -> dict[str, Any]:
    return {"ids": ids, "any_id": int(not ids)}


def _within(projects: Collection[str]) -> dict[str, Any]:
    return {"projects": to_json(sorted(projects))}


def last_event() -> Script[int]:
    [last] = yield query("last_event")
    return last["seq"] or 0


def names(ids: Sequence[str], *, projects: Collection[str] | None = None) -> Script[dict[str, str]]:
    if projects is None:
        rows = yield query("select_names", ids=ids)
    else:
        rows = yield query("select_names_in", ids=ids, projects=projects)
    return {row["id"]: row["name"] for row in rows}


def counts() -> Script[Counts]:
    active = yield query("count_active")
    oldest = yield query("oldest_queued")
    live = yield query("count_sessions")
    tallies = yield query("select_tallies")
    delays = yield query("select_start_delays")
    return Counts(
        runs={(row["state"], row["pool"]): row["count"] for row in active},
        oldest_queued_at={row["pool"]: instant(row["queued_at"]) for row in oldest},
        sessions={("alive", row["pool"]): row["count"] for row in live},
        finished={(row["job"], row["state"]): row["count"] for row in tallies},
        start_delays={(d["pool"], d["up_to"]): (d["count"], d["seconds"]) for d in delays},
    )


def check(tx: Tx) -> Script[None]:
    """Write something: a store that can be read may still refuse that."""
    yield Many("set_meta", [("checked_at", str(tx.now))])


_MAX_COUNT = 2**31  # lines or bytes of a chunk, of which an attempt has fewer than that
_MAX_LINE = 2**62


def open_outputs(session: str, runs: Collection[str]) -> Script[frozenset[Fence]]:
    """Attempts at these runs that the session has leased, or that ended with output to come."""
    rows = yield query("printing_fences", ids=runs, session=session)
    return frozenset(Fence(row["id"], row["attempt"]) for row in rows)


def add_chunks(
    tx: Tx, session: str, chunks: Sequence[tuple[Fence, StoredChunk]]
) -> Script[tuple[Fence, ...]]:
    """Record output that is in the blob store, of attempts that the session has leased or ended."""
    runs = {fence.run for fence, _ in chunks}
    yield query("runs_to_change", ids=runs)  # an end of theirs must see these chunks, or be seen
    open_fences = yield from open_outputs(session, runs)
    accepted = [(fence, chunk) for fence, chunk in chunks if fence in open_fences]
    if accepted:
        values = [chunk_values(session, fence, chunk) for fence, chunk in accepted]
        yield Many("insert_chunk", values, exactly=False)
        yield from settle_output({fence.run for fence, _ in accepted})
    return tuple(dict.fromkeys(fence for fence, _ in chunks if fence not in open_fences))


def chunk_values(session: str, fence: Fence, chunk: StoredChunk) -> tuple[object, ...]:
    """Values for `insert_chunk`, in its order."""
    meta = chunk.meta
    return (
        fence.run,
        fence.number,
        meta.number,
        session,
        _bounded(meta.first_line, _MAX_LINE),
        _bounded(meta.lines),
        _bounded(meta.bytes),
        meta.first_at,
        meta.last_at,
        chunk.key,
    )


def _bounded(count: int, limit: int = _MAX_COUNT) -> int:
    """A number that a worker tells, so small that no sum of such overflows."""
    return max(0, min(count, limit))


def settle_output(runs: Collection[str]) -> Script[None]:
    """Output of ended attempts is no longer pending once its last line has arrived.

    A worker sends in order and goes on only after an answer: the last line comes last.
    """
    if runs:
        yield query("settle_run_output", ids=runs)
        yield query("settle_attempt_output", ids=runs)


def tear_output(sessions: Collection[str]) -> Script[None]:
    """Output that is still on workers whose sessions are over will not come.

    The transaction has locked the runs that it belongs to.
    """
    yield query("tear_run_output", sessions=sessions)
    yield query("tear_attempt_output", sessions=sessions)


def chunks(
    run: RunId, attempt: int, from_line: int = 0, limit: int = _MAX_COUNT
) -> Script[list[StoredChunk]]:
    rows = yield query("select_chunks", run=run, attempt=attempt, from_line=from_line, limit=limit)
    return [
        StoredChunk(
            ChunkMeta(
                r["number"], r["first_line"], r["lines"], r["bytes"], r["first_at"], r["last_at"]
            ),
            r["key"],
            r["begins_at"],
        )
        for r in rows
    ]


def arrived_output(run: RunId, attempt: int) -> Script[ArrivedOutput]:
    [row] = yield query("sum_arrived", run=run, attempt=attempt)
    return ArrivedOutput(row["lines"], row["bytes"])


def inline_output(run: RunId, attempt: int) -> Script[bytes]:
    rows = yield query("select_inline_output", run=run, attempt=attempt)
    return (rows[0]["output"] or b"") if rows else b""
