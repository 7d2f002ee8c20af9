"""Why a run is not running, in words a person can act on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.job import rules_of
from rota.domain.jobfile import read_job
from rota.domain.run import Reason, Run
from rota.domain.shape import shape_of, unmet
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.stamps import stamp
from rota.ports.records import Session


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a run stands and what would move it on."""

    run: Run
    summary: str  # one sentence
    reasons: tuple[Reason, ...]
    passed: tuple[str, ...]  # gates that do not hold it
    position: int | None = None  # queued runs that go first; None: it is not queued
    since: datetime | None = None


_GATES = ("time", "calendar", "pause", "overlap", "max_concurrency", "worker")
_BACKFILL_GATES = ("time", "pause", "max_concurrency", "backfill", "worker")


async def why(backends: Backends, run: Run) -> Explanation:
    """Explain the state of a run by what the store knows of it."""
    gates = _gates(run)
    match run.state:
        case RunState.SCHEDULED:
            return _waits_for_time(run)
        case RunState.BLOCKED:
            summary = f"blocked: {run.reasons[0].message}" if run.reasons else "blocked"
            since = max(run.due_at, run.created_at)  # a backfill's due time is long past
            return Explanation(run, summary, run.reasons, _passed(run, run.reasons), since=since)
        case RunState.QUEUED:
            return await _waits_for_worker(backends, run)
        case RunState.CLAIMED | RunState.PROCESSING:
            verb = "claimed by" if run.state is RunState.CLAIMED else "running on"
            return Explanation(run, f"{verb} worker {run.worker}", (), gates, since=run.claimed_at)
        case RunState.UNKNOWN:
            reason = Reason(
                gate="person",
                message="its worker vanished while it ran, and at_most_once forbids a second try",
                action=f"rota run resolve {run.id} --as completed|failed|retry",
            )
            return Explanation(run, "unknown: a person must decide", (reason,), gates)
        case _:
            cause = f" ({run.cause})" if run.cause else ""
            return Explanation(run, f"it has ended: {run.state.lower()}{cause}", (), gates)


def _gates(run: Run) -> tuple[str, ...]:
    return _GATES if run.backfill is None else _BACKFILL_GATES


def _passed(run: Run, reasons: tuple[Reason, ...]) -> tuple[str, ...]:
    held = {reason.gate for reason in reasons}
    return tuple(gate for gate in _gates(run) if gate not in held)


def _waits_for_time(run: Run) -> Explanation:
    if run.reasons:
        summary = f"scheduled: {run.reasons[0].message}"
        return Explanation(run, summary, run.reasons, ("time",), since=run.due_at)
    what = "its retry's back-off" if run.attempt else "its time"
    reason = Reason(gate="time", message=_time_words(run), eligible_at=run.eligible_at)
    return Explanation(run, f"scheduled: waits for {what}", (reason,), (), since=run.created_at)


def _time_words(run: Run) -> str:
    """Until when it waits; a spread or jitter moves the release, never the due time."""
    if run.eligible_at is None:
        return "it is due"
    release = stamp(run.eligible_at)
    if run.attempt:
        return f"its retry's back-off ends at {release}"
    if run.eligible_at <= run.due_at:
        return f"it is due at {release}"
    return f"it is due at {stamp(run.due_at)}, and its spread or jitter releases it at {release}"


async def _waits_for_worker(backends: Backends, run: Run) -> Explanation:
    sessions = await backends.store.sessions(alive_only=True)
    documents = await backends.store.documents([(run.job_id, run.job_version)])
    shape = shape_of(rules_of(read_job(documents[run.job_id, run.job_version])))
    reason = _worker_reason(run, shape, [session for session in sessions if not session.stopping])
    position = await backends.store.queue_position(run.id)
    return Explanation(
        run,
        f"queued: {reason.message}",
        (reason,),
        _passed(run, (reason,)),
        position,
        run.queued_at,
    )


def _worker_reason(run: Run, shape: str, sessions: list[Session]) -> Reason:
    pool = [session for session in sessions if session.pool == run.pool]
    if not pool:
        others = sorted({session.pool for session in sessions})
        known = f" (workers serve {', '.join(others)})" if others else ""
        return Reason(
            "worker", f"no worker serves pool {run.pool}{known}", action="rota worker list"
        )
    lacking = [unmet(shape, session.labels, session.functions) for session in pool]
    if all(lacking):
        missing = "; ".join(sorted({", ".join(lacks) for lacks in lacking}))
        return Reason(
            "worker",
            f"none of the {len(pool)} workers of pool {run.pool} fits: missing {missing}",
            action="rota worker list",
        )
    fitting = [session for session, lacks in zip(pool, lacking, strict=True) if not lacks]
    taking = [session for session in fitting if not session.draining]
    if not taking:
        return _all_draining(sorted({session.worker for session in fitting}))
    used, slots = sum(s.held for s in taking), sum(s.slots for s in taking)
    return Reason("worker", f"{used} of {slots} slots are taken", action="rota run list --active")


def _all_draining(workers: list[str]) -> Reason:
    one, *others = workers
    message = f"worker {one} is draining"
    if others:
        message = f"all workers that fit are draining: {', '.join(workers)}"
    return Reason("worker", message, action=f"rota worker resume {one}")
