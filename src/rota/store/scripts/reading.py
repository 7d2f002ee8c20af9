"""What the store is asked, without changing it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.domain.ids import JobId, RunId, SessionId, instant, micros
from rota.domain.job import Job
from rota.domain.run import Attempt, LateResult, Run
from rota.domain.states import FINAL_STATES, RunState, seen_state
from rota.ports.records import (
    Counts,
    DueSchedule,
    EndedWait,
    Event,
    Heartbeat,
    JobQuery,
    LedgerEntry,
    RunQuery,
    Session,
    StoredChunk,
    Token,
)
from rota.ports.work import ChunkMeta, Fence
from rota.store.rows import (
    attempt_from,
    duration,
    event_from,
    from_json,
    job_from,
    late_result_from,
    like_pattern,
    optional_instant,
    optional_micros,
    run_from,
    session_from,
    token_from,
)
from rota.store.script import Query, Script, query
from rota.store.scripts.backfilling import with_backfills
from rota.store.scripts.offers import used_by

_MAX_SESSIONS = 1_000
_NO_POOL = ("",)  # one value, as lists of one are looked for fastest in SQLite
_LOOKED_AT = 10  # times as many runs as are wanted: most may have been skipped


def jobs(wanted: JobQuery) -> Script[list[Job]]:
    if wanted.ids is not None:
        rows = yield query("select_jobs_by_id", ids=wanted.ids, project=wanted.project)
    elif wanted.names is not None:
        rows = yield query("select_jobs_by_name", names=wanted.names, project=wanted.project)
    elif wanted.calendar is not None:
        rows = yield query(
            "select_jobs_by_calendar", calendar=wanted.calendar, project=wanted.project
        )
    else:
        rows = yield query(
            "select_jobs",
            project=wanted.project,
            after_name=wanted.after_name,
            name_like=like_pattern(wanted.name_like),
            set_name=wanted.set_name,
            created_by=wanted.created_by,
            limit=wanted.limit,
        )
    return sorted((job_from(row) for row in rows), key=lambda job: job.name)


def documents(
    refs: Sequence[tuple[JobId, int]],
) -> Script[dict[tuple[JobId, int], Mapping[str, Any]]]:
    rows = yield query("select_documents", ids={job for job, _ in refs})
    wanted = set(refs)
    return {
        (row["job_id"], row["version"]): from_json(row["document"])
        for row in rows
        if (row["job_id"], row["version"]) in wanted
    }


def due_schedules(
    before: datetime, limit: int, shards: Collection[int]
) -> Script[list[DueSchedule]]:
    rows = yield query("due_schedules", before=micros(before), limit=limit, shards=shards)
    return [
        DueSchedule(
            job_id=JobId(row["job_id"]),
            next_at=instant(row["next_at"]),
            schedule_version=row["schedule_version"],
            job_version=row["job_version"],
            anchor=instant(row["anchor"]),
            shard=row["shard"],
        )
        for row in rows
    ]


def ended_waits(limit: int) -> Script[list[EndedWait]]:
    rows = yield query("ended_waits", limit=limit)
    return [
        EndedWait(
            job_id=JobId(row["job_id"]),
            schedule_version=row["schedule_version"],
            job_version=row["job_version"],
            anchor=instant(row["anchor"]),
            ended_at=instant(row["ended_at"]),
        )
        for row in rows
    ]


def ended_pauses(now: int, limit: int) -> Script[list[Job]]:
    rows = yield query("ended_pauses", now=now, limit=limit)
    return [job_from(row) for row in rows]


def next_pause_end(now: int) -> Script[datetime | None]:
    [row] = yield query("next_pause_end", now=now)
    return optional_instant(row["ends_at"])


def next_eligible_at() -> Script[datetime | None]:
    [row] = yield query("next_eligible")
    return optional_instant(row["eligible_at"])


def served_pools() -> Script[frozenset[str]]:
    """The pools that have workers."""
    rows = yield query("served_pools")
    return frozenset(row["pool"] for row in rows)


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """Which answers to due times of a job are wanted."""

    job: JobId
    since: datetime
    until: datetime
    limit: int
    newest_first: bool = False


def ledger(part: LedgerPart) -> Script[list[LedgerEntry]]:
    bounds = {
        "job": part.job,
        "since": micros(part.since),
        "until": micros(part.until),
        "limit": part.limit,
    }
    if part.newest_first:
        runs = yield query("select_newest_ledger_runs", **bounds)
        stretches = yield query("select_newest_unanswered", **bounds)
    else:
        runs = yield query("select_ledger_runs", **bounds)
        stretches = yield query("select_unanswered", **bounds)
    served = yield from served_pools()
    entries = [
        LedgerEntry(
            instant(r["due_at"]),
            instant(r["due_at"]),
            1,
            seen_state(RunState(r["state"]), is_served=r["pool"] in served),
            r["cause"],
            RunId(r["id"]),
        )
        for r in runs
    ]
    entries += [
        LedgerEntry(
            instant(s["first"]), instant(s["last"]), s["count"], s["state"], s["cause"], None
        )
        for s in stretches
    ]
    entries = sorted(entries, key=lambda entry: entry.first, reverse=part.newest_first)
    return (yield from with_backfills(part.job, entries[: part.limit]))


def runs(wanted: RunQuery) -> Script[list[Run]]:
    states = yield from _states(wanted)
    rows = yield _runs_query(wanted, states)
    return [run_from(row) for row in rows]


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
    if wanted.ids is not None:
        return query("select_runs_by_id", ids=wanted.ids, project=wanted.project)
    if wanted.id_prefix is not None:
        return query(
            "select_runs_by_prefix",
            id_from=wanted.id_prefix,
            id_to=wanted.id_prefix + "\x7f",
            project=wanted.project,
            limit=wanted.limit,
        )
    filters = {
        "project": wanted.project,
        "before_seq": sys.maxsize if wanted.before_seq is None else wanted.before_seq,
        **states,
        "trigger": wanted.trigger,
        "since": optional_micros(wanted.since),
        "until": optional_micros(wanted.until),
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
        )
    if wanted.cart is not None:
        return query(
            "select_runs_of_cart",
            cart=wanted.cart,
            job=wanted.job_id,
            job_like=job_like,
            any_state=any_state,
            **filters,
        )
    if wanted.states and FINAL_STATES.isdisjoint(wanted.states):
        return query("select_active_runs", job=wanted.job_id, job_like=job_like, **filters)
    if wanted.job_id is not None:
        return query("select_runs_of_job", job=wanted.job_id, any_state=any_state, **filters)
    return query("select_runs", job_like=job_like, any_state=any_state, **filters)


def attempts(run: RunId) -> Script[list[Attempt]]:
    """Earlier attempts, and the latest one, which its run carries."""
    rows = yield query("select_attempts", run=run)
    earlier = [attempt_from(row) for row in rows]
    latest = yield query("latest_attempt", run=run)
    if latest and latest[0]["number"] > len(earlier):
        earlier.append(attempt_from(latest[0]))
    return earlier


def late_results(run: RunId) -> Script[list[LateResult]]:
    rows = yield query("select_late_results", run=run)
    return [late_result_from(row) for row in rows]


def chunks(run: RunId, attempt: int) -> Script[list[StoredChunk]]:
    rows = yield query("select_chunks", run=run, attempt=attempt)
    return [
        StoredChunk(
            ChunkMeta(
                r["number"], r["first_line"], r["lines"], r["bytes"], r["first_at"], r["last_at"]
            ),
            r["key"],
        )
        for r in rows
    ]


def inline_output(run: RunId, attempt: int) -> Script[bytes]:
    rows = yield query("select_inline_output", run=run, attempt=attempt)
    return (rows[0]["output"] or b"") if rows else b""


def sessions(alive_only: bool) -> Script[list[Session]]:
    rows = yield query("select_sessions", any=int(not alive_only), limit=_MAX_SESSIONS)
    used = yield from used_by([row for row in rows if row["held"]])
    return [session_from(row, row["held"], used.get(row["id"])) for row in rows]


def heartbeats() -> Script[list[Heartbeat]]:
    rows = yield query("heartbeats")
    return [Heartbeat(row["id"], row["beats"], duration(row["lease"])) for row in rows]


def any_queued(runs: Sequence[str]) -> Script[bool]:
    rows = yield query("any_queued", ids=runs)
    return bool(rows)


def cancels(session: SessionId) -> Script[tuple[Fence, ...]]:
    rows = yield query("held_runs", sessions=[session])
    return tuple(Fence(row["id"], row["attempt"]) for row in rows if row["cancel_at"] is not None)


def events(after: int, limit: int, ids: Sequence[str]) -> Script[list[Event]]:
    if ids:
        rows = yield query("select_events_of", after=after, limit=limit, ids=ids)
    else:
        rows = yield query("select_events", after=after, limit=limit)
    return [event_from(row) for row in rows]


def names(ids: Sequence[str]) -> Script[dict[str, str]]:
    rows = yield query("select_names", ids=ids)
    return {row["id"]: row["name"] for row in rows}


def start_delays(job: JobId, limit: int) -> Script[list[float]]:
    rows = yield query("latest_delays", job=job, limit=limit, looked_at=limit * _LOOKED_AT)
    return [row["delay"] / 1e6 for row in rows]


def tokens(kind: str) -> Script[list[Token]]:
    rows = yield query("select_tokens", kind=kind)
    return [token_from(row) for row in rows]


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
