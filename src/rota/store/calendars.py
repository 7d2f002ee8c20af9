"""Calendars: saved, used by jobs, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rota.domain.errors import Conflict, StaleTransition
from rota.ports.records import NewCalendar, NewJob, StoredCalendar
from rota.store.gates import lock_gates
from rota.store.rows import calendar_from, to_json
from rota.store.script import Many, Script, lock, query
from rota.store.tx import Tx

_SOME = 5


def find(project: str, names: Sequence[str] | None = None) -> Script[list[StoredCalendar]]:
    if names is None:
        rows = yield query("select_calendars", project=project)
    else:
        rows = yield query("select_calendars_by_name", project=project, names=names)
    return [calendar_from(row) for row in rows]


def save(tx: Tx, new: Sequence[NewCalendar], *, actor: str) -> Script[None]:
    """Create and change, all or none; plans made with the old version are refused from now on."""
    users = yield from lock_calendars(new)
    yield from lock_gates(users)
    yield from write(tx, new, actor)
    tx.effects.times = True


def lock_calendars(new: Sequence[NewCalendar], jobs: Sequence[NewJob] = ()) -> Script[set[str]]:
    """Lock calendars that change and those that jobs are to use; returns who uses the former."""
    changed = {(each.project, each.calendar.name) for each in new}
    used = {(job.project, name) for job in jobs for name in job.calendars}
    # By name across both kinds: a lock that is shared here may be exclusive for another.
    for (project, is_changed), group in groupby(
        sorted(changed | used), lambda key: (key[0], key in changed)
    ):
        kind = "calendars" if is_changed else "used_calendars"
        yield lock(kind, project=project, names=[name for _, name in group])
    # Complete only now: a job that begins to use a calendar has to share its lock first.
    users: set[str] = set()
    for project, name in sorted(changed):
        rows = yield query("jobs_with_calendar", project=project, name=name)
        users |= {row["job_id"] for row in rows}
    return users


def write(tx: Tx, new: Sequence[NewCalendar], actor: str) -> Script[None]:
    """Create and change calendars, locked with the gates of the jobs that use them."""
    for each in new:
        project, name = each.project, each.calendar.name
        yield from _require_version(project, name, each.expected_version)
        version = each.expected_version + 1
        document = to_json(each.calendar)
        try:
            yield Many("upsert_calendar", [(project, name, document, version, actor, tx.now)])
        except StaleTransition as error:
            raise _changed_meanwhile(name) from error
        # Moves the versions of schedules: firings planned with the old windows are stale from here.
        yield query("unsettle_schedules", project=project, name=name)
        kind = "calendar.changed" if each.expected_version else "calendar.created"
        tx.record_in(project, kind, [name], actor=actor)


def delete(tx: Tx, project: str, name: str, *, expected_version: int, actor: str) -> Script[None]:
    """Delete a calendar that no job uses."""
    yield lock("calendars", project=project, names=[name])
    yield from _require_version(project, name, expected_version)
    users = yield query("users_of_calendar", project=project, name=name, limit=_SOME)
    if users:
        raise Conflict(
            f"calendar {name} is used by jobs",
            code="calendar_in_use",
            hint=f"take it out of them first: {', '.join(row['name'] for row in users)}",
        )
    yield Many("delete_calendar", [(project, name)])
    tx.record_in(project, "calendar.deleted", [name], actor=actor)
    tx.effects.times = True


def save_uses(jobs: Sequence[NewJob]) -> Script[None]:
    """Note which calendars jobs use; `Conflict` if one of these is not there."""
    ids = [job.id for job in jobs]
    if not ids:
        return
    yield query("forget_calendar_uses", ids=ids)
    uses = [(job.id, job.project, name) for job in jobs for name in job.calendars]
    if not uses:
        return
    yield Many("insert_calendar_use", uses, exactly=False)
    for row in (yield query("missing_calendars", ids=ids)):
        raise Conflict(
            f"there is no calendar {row['calendar']} any more",
            code="calendar_gone",
            hint="define it in the file, or take it out of the jobs",
        )


def _require_version(project: str, name: str, expected: int) -> Script[None]:
    rows = yield query("select_calendars_by_name", project=project, names=[name])
    if [row["version"] for row in rows] != ([expected] if expected else []):
        raise _changed_meanwhile(name)


def _changed_meanwhile(name: str) -> Conflict:
    return Conflict(
        f"calendar {name} was changed by someone else meanwhile",
        code="calendar_changed",
        hint="look at the new version and try again",
    )
