"""Declarations of people about shared keys: limits, resources, quotas."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from rota.domain.errors import Conflict
from rota.domain.ids import RunId, instant
from rota.domain.keys import (
    KINDS,
    WAITING_QUOTA,
    Asker,
    Counted,
    Declaration,
    Demands,
    Key,
    KeyKind,
    Quota,
    is_for_all,
    key_of,
)
from rota.domain.states import LEASED_STATES, RunState
from rota.ports.records import Declared, KeyUse, ProjectCounts
from rota.store.keys import (
    ForAll,
    declaration_from,
    declared_in,
    load_kept,
    load_states,
    lock_keys,
    rules_of,
    wanted_by,
)
from rota.store.rows import from_json, optional_instant, to_json
from rota.store.script import Many, Row, Script, query
from rota.store.tx import Tx

_SOME = 5
_HOLDERS = 10
_WORDS = {KeyKind.RATE: "limit", KeyKind.RESOURCE: "resource", KeyKind.QUOTA: "quota"}


def declarations(project: str | None = None, kind: KeyKind | None = None) -> Script[list[Declared]]:
    rows = yield query("select_declarations", project=project, kind=kind)
    return [_declared(row) for row in rows]


def _declared(row: Row) -> Declared:
    return Declared(declaration_from(row), row["updated_by"], instant(row["updated_at"]))


def save(tx: Tx, new: Sequence[Declaration], *, actor: str) -> Script[None]:
    """Create or replace, all or none."""
    old: list[Declaration] = []
    # In one order: two files that declare the same must not wait for one another.
    for each in sorted(new, key=lambda each: (KINDS[type(each)], each.project, each.name)):
        kind = KINDS[type(each)]
        old += yield from _lock_declaration(kind, each.project, each.name)
        yield Many(
            "save_declaration", [(kind, each.project, each.name, to_json(each), actor, tx.now)]
        )
        _record(tx, "saved", kind, each, actor)
    yield from rekey_later(tx.now, (*old, *new))
    tx.effects.keys |= bool(new)


def delete(tx: Tx, kind: KeyKind, project: str, name: str, *, actor: str) -> Script[bool]:
    """Whether there was one; a resource that jobs use stays."""
    old = yield from _lock_declaration(kind, project, name)
    if not old:
        return False
    if kind is KeyKind.RESOURCE:
        yield from _refuse_use(project, name)
    yield query("delete_declaration", kind=kind, project=project, name=name)
    _record(tx, "deleted", kind, old[0], actor)
    yield from rekey_later(tx.now, old)
    tx.effects.keys = True
    return True


def _lock_declaration(kind: KeyKind, project: str, name: str) -> Script[list[Declaration]]:
    """Lock what is declared under a name, if anything."""
    rows = yield query("declaration_to_change", kind=kind, project=project, name=name)
    return [declaration_from(row) for row in rows]


def _refuse_use(project: str, name: str) -> Script[None]:
    users = yield query("users_of_resource", project=project, name=name, limit=_SOME)
    if users:
        raise Conflict(
            f"resource {name} is used by jobs",
            code="resource_in_use",
            hint=f"take it out of them first: {', '.join(row['name'] for row in users)}",
        )


def _record(tx: Tx, event: str, kind: KeyKind, about: Declaration, actor: str) -> None:
    event = f"{_WORDS[kind]}.{event}"
    tx.record_in(about.project, event, [], actor=actor, name=about.name)


def key_uses(now: int, keys: Collection[Key]) -> Script[dict[Key, KeyUse]]:
    """How these keys stand; those without a rule are left out."""
    states = yield from load_states(now, keys)
    for key, kept in (yield from load_kept(now, states)).items():
        states[key] = kept.kept_of(states[key])
    rows = (yield query("count_key_waiters", keys=states)) if states else ()
    waiting = {row["key"]: row["runs"] for row in rows}
    holders = yield from _holders(states)
    return {
        key: KeyUse(state, tuple(holders.get(key, ())), waiting.get(key, 0))
        for key, state in states.items()
    }


def _holders(keys: Collection[Key]) -> Script[dict[Key, list[RunId]]]:
    """Some of the runs that have these keys now."""
    holders: dict[Key, list[RunId]] = defaultdict(list)
    for row in (yield query("key_holders", keys=keys, limit=_HOLDERS)) if keys else ():
        holders[row["key"]].append(RunId(row["id"]))
    return holders


def next_key_at(after: int) -> Script[datetime | None]:
    """When the next run may go of those that had to wait for longer than that."""
    [row] = yield query("next_key_at", after=after)
    return optional_instant(row["eligible_at"])


def rekey_later(now: int, declarations: Iterable[Declaration]) -> Script[None]:
    """Let the runs of their projects take their keys, a part at a time."""
    projects = {each.project for each in declarations if is_for_all(each)}
    if projects:
        yield Many("begin_rekeying", [(project, now) for project in sorted(projects)])


def rekey(tx: Tx, limit: int) -> Script[bool]:
    """Look at so many runs of a project where that is to be done; returns whether there was one.

    Those that live hold its units from now on. To those in the queue they are promised, as to
    others who are let through: they take them, or lose them, when they are claimed.
    """
    places = yield query("rekeying")
    if not places:
        return False
    place = dict(places[0])
    found = yield query("active_seqs", project=place["project"], after=place["after"], limit=limit)
    seqs = [row["seq"] for row in found]
    rows = (yield query("runs_to_rekey", seqs=seqs)) if seqs else ()
    # Runs are locked before the mark is moved on, and no shared key is: what runs take of one is
    # counted by their rows, and whoever locks the key next sees them.
    yield from _rekey(tx, rows, (yield from declared_in([place["project"]])))
    # Under another `since` somebody has declared more in the meantime, and it begins anew.
    if len(seqs) < limit:
        yield query("end_rekeying", **place)
    else:
        yield query("go_on_rekeying", **place, next_after=seqs[-1])
    return True


def _rekey(tx: Tx, rows: Sequence[Row], for_all: ForAll) -> Script[None]:
    versions = yield from tx.rules.load({(row["job_id"], row["job_version"]) for row in rows})
    wanted: dict[int, Demands] = {}
    for row in rows:
        rules = versions[row["job_id"], row["job_version"]].rules
        inputs = from_json(row["inputs"]) if rules.exclusive_by else None
        wanted[row["seq"]] = wanted_by(Asker(rules, row["asker"], inputs or {}), for_all) or {}
    new = [row for row in rows if wanted[row["seq"]] != (from_json(row["keys"]) or {})]
    if new:
        # Never none at all: who waits for a key that it takes no more is found by having keys.
        yield Many("set_run_keys", [(to_json(wanted[row["seq"]]), row["seq"]) for row in new])
        yield from _take(new, wanted)


def _take(rows: Sequence[Row], wanted: Mapping[int, Demands]) -> Script[None]:
    """Tokens that live runs did not need when they started are not taken of them later."""
    rules = yield from rules_of({key for row in rows for key in wanted[row["seq"]]})
    units = {key for key, rule in rules.items() if isinstance(rule, Counted)}
    taken = [
        (key, row["seq"], amount)
        for row in rows
        for key, amount in wanted[row["seq"]].items()
        if row["state"] == RunState.QUEUED or (row["state"] in LEASED_STATES and key in units)
    ]
    if taken:
        yield Many("hold_key", taken)


def refuse_beyond_quota(submitted: Counter[str], for_all: ForAll) -> Script[None]:
    """`Conflict` if so many more runs, by project, would wait than its quota allows."""
    limits = _most_waiting(submitted, for_all)
    rooms = yield from _rooms(limits)
    for project, room in rooms.items():
        if submitted[project] > room:
            raise _beyond(project, limits[project], submitted)


def room_to_wait(project: str) -> Script[int | None]:
    """How many more runs of a project may wait, while the transaction lasts; None: any number."""
    limits = _most_waiting([project], (yield from declared_in([project])))
    rooms = yield from _rooms(limits)
    return rooms.get(project)


def counts_of(project: str) -> Script[ProjectCounts]:
    """How much there is of what is refused beyond a quota."""
    [row] = yield query("count_of_project", project=project)
    return ProjectCounts(row["jobs"], row["waiting"])


def _most_waiting(projects: Iterable[str], for_all: ForAll) -> dict[str, int]:
    """Those of the projects that have such a quota."""
    return {
        project: each.queued
        for project in projects
        for each in for_all.get(project, ())
        if isinstance(each, Quota) and each.queued is not None
    }


def _rooms(limits: Mapping[str, int]) -> Script[dict[str, int]]:
    """Room left in these quotas. One transaction at a time counts and adds to it."""
    if not limits:
        return {}
    yield from lock_keys([key_of(KeyKind.QUOTA, project, WAITING_QUOTA) for project in limits])
    rooms: dict[str, int] = {}
    for project, limit in limits.items():
        [row] = yield query("count_waiting", project=project, limit=limit)
        rooms[project] = limit - row["runs"]
    return rooms


def _beyond(project: str, limit: int, submitted: Mapping[str, int]) -> Conflict:
    return Conflict(
        f"project {project} would go beyond its quota of runs that wait,"
        f" {limit:,}, with {submitted[project]:,} more",
        code="quota_exceeded",
        hint="wait until some have started, or ask an admin to raise it: rota quota show",
        facts={"quota": WAITING_QUOTA, "limit": limit},
    )
