"""Jobs: created, changed, paused, deleted and found."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from rota.domain.errors import Conflict, StaleTransition
from rota.domain.ids import JobId, RunId, micros, shard_of
from rota.domain.job import Job
from rota.domain.keys import Declaration
from rota.domain.states import Cause, RunState
from rota.ports.carts import NO_TEMPLATES, TemplateChanges
from rota.ports.records import JobQuery, NewCalendar, NewJob, RemovedJob, ScheduleMove
from rota.store import calendars, cart_views, limits, order
from rota.store.dependencies import forget_jobs, refuse_rings, save_dependencies
from rota.store.firing import answer_overdue
from rota.store.gates import lock_gates
from rota.store.projects import share_projects
from rota.store.releases import block_job, release_jobs, unblock_job
from rota.store.rows import (
    by_kind,
    from_json,
    job_from,
    like_pattern,
    optional_instant,
    optional_micros,
    project_filter,
    to_json,
)
from rota.store.schedules import answered_to, insert_unanswered, moved_meanwhile
from rota.store.script import Many, Query, Script, query
from rota.store.transactions import of_each, together
from rota.store.tx import Tx
from rota.store.waits import EndOfWait, end_waiting


@dataclass(frozen=True, slots=True)
class Definitions:
    """Definitions that one save creates, changes and deletes."""

    jobs: Sequence[NewJob]
    removed: Sequence[RemovedJob]
    calendars: Sequence[NewCalendar] = ()
    templates: TemplateChanges = NO_TEMPLATES
    declarations: Sequence[Declaration] = ()
    shares: Sequence[str] = ()  # that jobs may name from now on

    @property
    def projects(self) -> set[str]:
        """Projects that get something."""
        owners = {job.project for job in self.jobs} | {each.project for each in self.calendars}
        owners |= {each.project for each in self.templates.new}
        return owners | {each.project for each in self.declarations}


def save(
    tx: Tx,
    jobs: Sequence[NewJob],
    *,
    removed: Sequence[RemovedJob] = (),
    actor: str,
    calendars: Sequence[NewCalendar] = (),
    templates: TemplateChanges = NO_TEMPLATES,
    declarations: Sequence[Declaration] = (),
    shares: Sequence[str] = (),
) -> Script[None]:
    """Create, change and delete, all or none."""
    new = Definitions(jobs, removed, calendars, templates, declarations, shares)
    yield from _save_all(tx, new, actor)


def _save_all(tx: Tx, definitions: Definitions, actor: str) -> Script[None]:
    tx.effects.times = True
    jobs = sorted(definitions.jobs, key=lambda job: (job.project, job.name))
    yield from share_projects(definitions.projects)
    # Calendars, templates, gates: the order of locks.
    users = yield from calendars.lock_calendars(definitions.calendars, jobs)
    yield from cart_views.save(tx, definitions.templates, actor)
    known = [job.id for job in jobs if job.expected_version]
    yield from lock_gates({*known, *(job.id for job in definitions.removed), *users})
    # Before the calendars: a change of one moves the version of every schedule that uses it.
    seen = [(job.id, job.expected_schedule_version) for job in jobs]
    seen += [(job.id, job.expected_schedule_version) for job in definitions.removed]
    yield from _require_seen(seen)
    for job in jobs:
        if job.overdue is not None:
            yield from answer_overdue(tx, job.overdue)
    yield from calendars.write(tx, definitions.calendars, actor)
    yield from limits.save(tx, definitions.declarations, actor=actor)
    yield from order.add_shares(tx, definitions.shares, actor)
    for job in jobs:
        yield from _save(tx.now, job, actor)
    yield from calendars.save_uses(jobs)
    yield from save_dependencies(tx, jobs)
    if definitions.removed:
        yield from _remove(tx, definitions.removed, actor)
    for (project, is_old), same in by_kind(jobs, _project_and_age).items():
        kind = "job.changed" if is_old else "job.created"
        tx.record_in(project, kind, [job.id for job in same], actor=actor)
    changed = [job.id for job in jobs if job.expected_version]
    limited = [job.id for job in jobs if job.expected_version and job.rules.max_concurrency]
    if limited:
        # Runs by hand of a job without a limit count nowhere: those with a slot do from now on.
        yield query("count_at_gate", ids=limited)
    yield from release_jobs(tx, changed)
    yield from refuse_rings(jobs)


def _save(now: int, job: NewJob, actor: str) -> Script[None]:
    shard, enabled = shard_of(job.id), int(job.enabled)
    if job.expected_version == 0:
        taken = yield query("live_job", project=job.project, name=job.name)
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
    yield from _require_cursor(job.id, job.claimed_cursor)
    yield from insert_unanswered([(job.id, job.answered)])
    version = job.expected_version + 1
    document, rules = to_json(job.document), to_json(job.rules)
    yield Many("insert_job_version", [(job.id, version, document, job.digest, rules, actor, now)])
    values = (
        job.id,
        shard,
        optional_micros(job.next_at),
        micros(job.anchor),
        optional_micros(job.held_from),
        answered_to(job.answered),
        int(job.restarts or job.claimed_cursor is not None),
        int(job.restarts),
    )
    yield Many("upsert_schedule", [values])


def _require_seen(seen: Sequence[tuple[JobId, int | None]]) -> Script[None]:
    """`Conflict` if a schedule was held, let go or moved since somebody looked at it."""
    expected = {job: version for job, version in seen if version is not None}
    rows = (yield query("claimed_schedules", ids=list(expected))) if expected else ()
    stands = {row["job_id"]: row["version"] for row in rows}
    for job, version in expected.items():
        if stands.get(job) != version:
            raise moved_meanwhile(job)


def _require_cursor(job: JobId, claimed: datetime | None) -> Script[None]:
    """`Conflict` if a schedule is to move on from where it no longer stands."""
    if claimed is None:
        return
    rows = yield query("claimed_schedules", ids=[job])
    stands = [row["held_from"] if row["next_at"] is None else row["next_at"] for row in rows]
    if stands != [micros(claimed)]:
        raise moved_meanwhile(job)


def _changed_meanwhile(name: str) -> Conflict:
    return Conflict(
        f"job {name} was changed by someone else meanwhile",
        code="job_changed",
        hint="look at the new version and apply again",
    )


def _project_and_age(job: NewJob) -> tuple[str, bool]:
    return job.project, bool(job.expected_version)


def _remove(tx: Tx, removed: Sequence[RemovedJob], actor: str) -> Script[None]:
    """Delete jobs. Runs that a pause blocks, or that wait for other jobs, end with them."""
    for job in removed:
        yield from _require_cursor(job.id, job.claimed_cursor)
    yield from insert_unanswered((job.id, job.answered) for job in removed)
    ids = [job.id for job in removed]
    paused = yield query("waiting_runs_of_paused_jobs", ids=ids)
    following = yield query("waiters_of_jobs", jobs=ids)
    if paused or following:
        runs = [RunId(row["id"]) for row in (*paused, *following)]
        end = EndOfWait(RunState.SKIPPED, Cause.DELETED, actor)
        yield from end_waiting(tx, runs, end)
    # The row of the schedule stays: live runs of a deleted job still pass its gate.
    gone = yield query("delete_jobs", ids=ids, now=tx.now)
    yield query("delete_schedules", ids=ids)
    yield query("forget_calendar_uses", ids=ids)
    if gone:
        yield from forget_jobs(tx, gone)
        for same in by_kind(gone, itemgetter("project")).values():
            names = [row["name"] for row in same]
            tx.record_each("job.deleted", same, actor=actor, names=names)


def move(tx: Tx, moves: Sequence[ScheduleMove], *, actor: str) -> Script[None]:
    """Pause, resume, enable, disable or skip, all or none; queued runs follow."""
    tx.effects.times = True
    yield from lock_gates({item.job_id for item in moves})
    for item in moves:
        if item.overdue is not None:
            yield from answer_overdue(tx, item.overdue)
        yield from _move(tx.now, item, actor)
    yield from insert_unanswered((item.job_id, item.answered) for item in moves)
    kinds = {item.job_id: item.kind for item in moves}
    moved = yield query("projects_of_jobs", ids=kinds)
    for kind, rows in sorted(by_kind(moved, lambda row: kinds[row["id"]]).items()):
        tx.record_each(f"job.{kind}", rows, actor=actor)
    for item in moves:
        if item.paused:
            yield from block_job(tx, item.job_id)
        else:
            yield from unblock_job(tx, item.job_id)


def _move(now: int, item: ScheduleMove, actor: str) -> Script[None]:
    values = (
        optional_micros(item.next_at),
        optional_micros(item.held_from),
        answered_to(item.answered),
        item.job_id,
        item.expected_schedule_version,
        optional_micros(item.expected_next_at),
    )
    flags = int(item.enabled), int(item.paused), optional_micros(item.paused_until)
    try:
        yield Many("move_schedule", [values])
        yield Many("set_job_flags", [(*flags, now, actor, item.job_id)])
    except StaleTransition as error:
        raise moved_meanwhile(item.job_id) from error


def find(wanted: JobQuery, /) -> Script[list[Job]]:
    if wanted.ids is not None:
        rows = yield query("select_jobs_by_id", ids=wanted.ids, project=wanted.project)
    elif wanted.names is not None:
        rows = yield query("select_jobs_by_name", names=wanted.names, project=wanted.project)
    elif wanted.calendar is not None:
        rows = yield query(
            "select_jobs_by_calendar", calendar=wanted.calendar, project=wanted.project
        )
    else:
        rows = yield _list_query(wanted)
    return sorted((job_from(row) for row in rows), key=lambda job: (job.project, job.name))


def _list_query(wanted: JobQuery) -> Query:
    filters: dict[str, object] = {
        "after_name": wanted.after_name,
        "name_like": like_pattern(wanted.name_like),
        "set_name": wanted.set_name,
        "limit": wanted.limit,
    }
    project = wanted.project
    if isinstance(project, str) and wanted.created_by is None:
        return query("select_jobs", project=project, **filters)
    filters |= project_filter(project)
    filters["after_project"] = project if isinstance(project, str) else wanted.after_project
    if wanted.created_by is not None:
        return query("select_jobs_of_user", created_by=wanted.created_by, **filters)
    return query("select_jobs_of_projects", **filters)


def names_of_jobs(project: str, like: str, limit: int) -> Script[list[str]]:
    rows = yield query("names_of_jobs", project=project, like=like, limit=limit)
    return [row["name"] for row in rows]


def deleted_job(project: str, name_or_id: str) -> Script[Job | None]:
    rows = yield query("deleted_job", project=project, name=name_or_id)
    return job_from(rows[0]) if rows else None


def last_runs(jobs: Collection[JobId]) -> Script[dict[JobId, tuple[str, datetime | None]]]:
    rows = yield query("last_runs", ids=jobs)
    return {row["job_id"]: (row["state"], optional_instant(row["ended_at"])) for row in rows}


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


def jobs_by_id(queries: Sequence[JobQuery]) -> Script[list[list[Job]]]:
    """Jobs that each of these finds by id; all in one project."""
    wanted = [each.ids or () for each in queries]
    found = yield from find(replace(queries[0], ids=together(wanted)))
    return of_each({job.id: job for job in found}, wanted)


def jobs_by_name(queries: Sequence[JobQuery]) -> Script[list[list[Job]]]:
    """Jobs that each of these finds by name; all in one project."""
    wanted = [each.names or () for each in queries]
    found = yield from find(replace(queries[0], names=together(wanted)))
    return of_each({job.name: job for job in found}, wanted)
