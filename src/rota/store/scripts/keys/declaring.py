"""What people declare about keys, and how these stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from rota.domain.errors import Conflict
from rota.domain.ids import RunId, instant
from rota.domain.keys import KINDS, Declaration, Key, KeyKind
from rota.ports.limits import Declared, KeyUse
from rota.store.rows import optional_instant, to_json
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.keys.keeping import load_kept
from rota.store.scripts.keys.rekeying import rekey_later
from rota.store.scripts.keys.states import declaration_from, load_states
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
    for each in sorted(new, key=lambda each: (KINDS[type(each)], each.project, each.name)):
        kind = KINDS[type(each)]
        old += yield from _hold(kind, each.project, each.name)
        yield Many(
            "save_declaration", [(kind, each.project, each.name, to_json(each), actor, tx.now)]
        )
        yield _record(tx, "saved", kind, each, actor)
    yield from rekey_later(tx.now, (*old, *new))
    tx.effects.keys |= bool(new)


def delete(tx: Tx, kind: KeyKind, project: str, name: str, *, actor: str) -> Script[bool]:
    """Whether there was one; a resource that jobs use stays."""
    old = yield from _hold(kind, project, name)
    if not old:
        return False
    if kind is KeyKind.RESOURCE:
        yield from _refuse_use(project, name)
    yield query("delete_declaration", kind=kind, project=project, name=name)
    yield _record(tx, "deleted", kind, old[0], actor)
    yield from rekey_later(tx.now, old)
    tx.effects.keys = True
    return True


def _hold(kind: KeyKind, project: str, name: str) -> Script[list[Declaration]]:
    """What is declared under a name, if anything; nobody else changes it meanwhile."""
    rows = yield query("hold_declaration", kind=kind, project=project, name=name)
    return [declaration_from(row) for row in rows]


def _refuse_use(project: str, name: str) -> Script[None]:
    users = yield query("users_of_resource", project=project, name=name, limit=_SOME)
    if users:
        raise Conflict(
            f"resource {name} is used by jobs",
            code="resource_in_use",
            hint=f"take it out of them first: {', '.join(row['name'] for row in users)}",
        )


def _record(tx: Tx, event: str, kind: KeyKind, about: Declaration, actor: str) -> Many:
    event = f"{_WORDS[kind]}.{event}"
    return tx.record_in(about.project, event, [], actor=actor, name=about.name)


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
