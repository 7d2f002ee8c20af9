"""Jobs: created, changed, held, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from rota.adapters.store.rows import optional_micros, reasons_to, to_json
from rota.adapters.store.script import Many, Script, query
from rota.adapters.store.scripts.queueing import Effects, Gatekeeper, record, release_jobs
from rota.adapters.store.scripts.rules import RulesBook
from rota.adapters.store.scripts.submitting import insert_unanswered
from rota.domain.errors import Conflict, StaleTransition
from rota.domain.gates import job_key
from rota.domain.ids import JobId, micros, shard_of
from rota.ports.store import NewJob, ScheduleMove, Wakes


def save(now: int, jobs: Sequence[NewJob], removed: Sequence[JobId], actor: str, book: RulesBook) -> Script[Wakes]:
    """Create, change and delete, all or none."""
    effects = Effects(times=True)
    for job in jobs:
        yield from _save(now, job, actor)
    if removed:
        yield from _remove(now, removed, actor)
    changed = [job.id for job in jobs if job.expected_version]
    created = [job.id for job in jobs if not job.expected_version]
    for kind, ids in (("job.created", created), ("job.changed", changed)):
        if ids:
            yield record(kind, now, ids, actor=actor)
    yield from release_jobs(now, changed, book, effects)
    return effects.wakes()


def _save(now: int, job: NewJob, actor: str) -> Script[None]:
    shard, enabled = shard_of(job.id), int(job.enabled)
    if job.expected_version == 0:
        taken = yield query("jobs_by_name", project=job.project, names=[job.name])
        if taken:
            raise _changed_meanwhile(job.name)
        yield Many("insert_job", [(job.id, job.project, job.name, shard, job.set_name, actor, now, enabled)])
    else:
        try:
            yield Many(
                "update_job", [(job.set_name, now, enabled, int(job.restarts), job.id, job.expected_version)]
            )
        except StaleTransition as error:
            raise _changed_meanwhile(job.name) from error
    version = job.expected_version + 1
    document, rules = to_json(job.document), to_json(job.rules)
    yield Many("insert_job_version", [(job.id, version, document, job.digest, rules, actor, now)])
    values = (job.id, shard, optional_micros(job.next_at), micros(job.anchor), optional_micros(job.held_from))
    yield Many("upsert_schedule", [values])


def _changed_meanwhile(name: str) -> Conflict:
    return Conflict(
        f"job {name} was changed by someone else meanwhile",
        code="job_changed",
        hint="look at the new version and apply again",
    )


def _remove(now: int, ids: Sequence[JobId], actor: str) -> Script[None]:
    gone = yield query("delete_jobs", ids=ids, now=now)
    yield query("delete_schedules", ids=ids)
    if gone:
        yield record(
            "job.deleted", now, [row["id"] for row in gone], actor=actor, names=[row["name"] for row in gone]
        )


def move(now: int, moves: Sequence[ScheduleMove], actor: str, book: RulesBook) -> Script[Wakes]:
    """Pause, resume, enable or disable, all or none; queued runs follow."""
    effects = Effects(times=True)
    for item in moves:
        values = (
            optional_micros(item.next_at),
            optional_micros(item.held_from),
            item.job_id,
            item.expected_schedule_version,
        )
        try:
            yield Many("move_schedule", [values])
        except StaleTransition as error:
            raise Conflict("the job changed meanwhile", code="job_changed", hint="try again") from error
        paused_by = actor if item.paused else ""
        yield Many("set_job_flags", [(int(item.enabled), int(item.paused), paused_by, now, item.job_id)])
    yield from insert_unanswered((item.job_id, item.ranges) for item in moves)
    for kind in sorted({item.kind for item in moves}):
        ids = [item.job_id for item in moves if item.kind == kind]
        yield record(f"job.{kind}", now, ids, actor=actor)
    for item in moves:
        if item.paused:
            yield from _hold_queued(now, item.job_id, book)
    yield from release_jobs(now, [item.job_id for item in moves if not item.paused], book, effects)
    return effects.wakes()


def _hold_queued(now: int, job: JobId, book: RulesBook) -> Script[None]:
    """Runs that were queued when the job was paused wait for its end."""
    queued = yield query("queued_runs_of_job", job=job)
    waiting = yield query("waiting_runs", key=job_key(job), limit=100_000)
    if not queued and not waiting:
        return
    gatekeeper = Gatekeeper(book)
    yield from gatekeeper.load(now, [job])
    admission = gatekeeper.hold(job)
    reasons = reasons_to(admission.reasons)
    if queued:
        yield Many("block_run", [(admission.blocked_on, reasons, row["id"]) for row in queued])
        yield record("run.blocked", now, [row["id"] for row in queued], actor="scheduler")
    if waiting:
        yield Many("rename_block", [(admission.blocked_on, reasons, row["id"]) for row in waiting])
