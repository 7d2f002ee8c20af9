"""Jobs: created, changed, held, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.adapters.store.rows import optional_micros, to_json
from rota.adapters.store.script import Many, Script, query
from rota.adapters.store.scripts import calendars
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.firing import insert_unanswered
from rota.adapters.store.scripts.queueing import end_waiting
from rota.adapters.store.scripts.releasing import hold_job, release_jobs, unhold_job
from rota.domain.errors import Conflict, StaleTransition
from rota.domain.ids import JobId, RunId, micros, shard_of
from rota.domain.states import RunState
from rota.ports.calendars import NewCalendar
from rota.ports.records import NewJob, ScheduleMove, Wakes


@dataclass(frozen=True, slots=True)
class Definitions:
    """What one save creates, changes and deletes."""

    jobs: Sequence[NewJob]
    removed: Sequence[JobId]
    calendars: Sequence[NewCalendar] = ()


def save(now: int, definitions: Definitions, actor: str) -> Script[Wakes]:
    """Create, change and delete, all or none."""
    effects = Effects(times=True)
    jobs = definitions.jobs
    yield from calendars.save(now, definitions.calendars, actor)
    for job in jobs:
        yield from _save(now, job, actor)
    yield from calendars.save_uses(jobs)
    if definitions.removed:
        yield from _remove(now, definitions.removed, actor)
    changed = [job.id for job in jobs if job.expected_version]
    created = [job.id for job in jobs if not job.expected_version]
    for kind, ids in (("job.created", created), ("job.changed", changed)):
        if ids:
            yield record(kind, now, ids, actor=actor)
    limited = [job.id for job in jobs if job.expected_version and job.rules.max_concurrency]
    if limited:
        yield query("count_at_gate", ids=limited)
    yield from release_jobs(now, changed, effects)
    return effects.wakes()


def _save(now: int, job: NewJob, actor: str) -> Script[None]:
    shard, enabled = shard_of(job.id), int(job.enabled)
    if job.expected_version == 0:
        taken = yield query("jobs_by_name", project=job.project, names=[job.name])
        if taken:
            raise _changed_meanwhile(job.name)
        yield Many(
            "insert_job",
            [(job.id, job.project, job.name, shard, job.set_name, actor, now, enabled)],
        )
    else:
        try:
            yield Many(
                "update_job",
                [(job.set_name, now, enabled, int(job.restarts), job.id, job.expected_version)],
            )
        except StaleTransition as error:
            raise _changed_meanwhile(job.name) from error
    yield from _require_cursor(job)
    yield from insert_unanswered([(job.id, job.unanswered)])
    version = job.expected_version + 1
    document, rules = to_json(job.document), to_json(job.rules)
    yield Many("insert_job_version", [(job.id, version, document, job.digest, rules, actor, now)])
    values = (
        job.id,
        shard,
        optional_micros(job.next_at),
        micros(job.anchor),
        optional_micros(job.held_from),
        int(job.restarts or job.claimed_cursor is not None),
        int(job.restarts),
    )
    yield Many("upsert_schedule", [values])


def _require_cursor(job: NewJob) -> Script[None]:
    """`Conflict` if a schedule is to move on from where it no longer stands."""
    if job.claimed_cursor is None:
        return
    rows = yield query("claimed_schedules", ids=[job.id])
    stands = [row["held_from"] if row["next_at"] is None else row["next_at"] for row in rows]
    if stands != [micros(job.claimed_cursor)]:
        raise Conflict(f"job {job.name} fired meanwhile", code="schedule_moved", hint="apply again")


def _changed_meanwhile(name: str) -> Conflict:
    return Conflict(
        f"job {name} was changed by someone else meanwhile",
        code="job_changed",
        hint="look at the new version and apply again",
    )


def _remove(now: int, ids: Sequence[JobId], actor: str) -> Script[None]:
    """What a pause holds ends with its job: nobody could resume it."""
    held = yield query("waiting_runs_of_paused_jobs", ids=ids)
    if held:
        runs = [RunId(row["id"]) for row in held]
        yield from end_waiting(now, runs, RunState.SKIPPED, "deleted", actor)
    gone = yield query("delete_jobs", ids=ids, now=now)
    yield query("delete_schedules", ids=ids)
    yield query("forget_calendar_uses", ids=ids)
    if gone:
        names = [row["name"] for row in gone]
        yield record("job.deleted", now, [row["id"] for row in gone], actor=actor, names=names)


def move(now: int, moves: Sequence[ScheduleMove], actor: str) -> Script[Wakes]:
    """Pause, resume, enable, disable or skip, all or none; queued runs follow."""
    effects = Effects(times=True)
    for item in moves:
        yield from _move(now, item, actor)
    yield from insert_unanswered((item.job_id, item.ranges) for item in moves)
    for kind in sorted({item.kind for item in moves}):
        ids = [item.job_id for item in moves if item.kind == kind]
        yield record(f"job.{kind}", now, ids, actor=actor)
    for item in moves:
        if item.paused:
            yield from hold_job(now, item.job_id)
        else:
            yield from unhold_job(now, item.job_id, effects)
    return effects.wakes()


def _move(now: int, item: ScheduleMove, actor: str) -> Script[None]:
    values = (
        optional_micros(item.next_at),
        optional_micros(item.held_from),
        item.job_id,
        item.expected_schedule_version,
        optional_micros(item.expected_next_at),
    )
    flags = int(item.enabled), int(item.paused), optional_micros(item.paused_until)
    try:
        yield Many("move_schedule", [values])
        yield Many("set_job_flags", [(*flags, now, actor, item.job_id)])
    except StaleTransition as error:
        raise Conflict("the job changed meanwhile", code="job_changed", hint="try again") from error
