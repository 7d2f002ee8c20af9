"""Letting runs go that waited for a key, as far as there is room in it now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import TypeAlias

from rota.domain.key_gates import Wait, is_untouched, room_of
from rota.domain.keys import (
    SECOND,
    Declaration,
    Key,
    KeyKind,
    KeyState,
    Shortage,
    keys_of,
    prefix_of,
)
from rota.domain.states import RunState
from rota.store.gates import Kind, lock_free_gates
from rota.store.keys import (
    Ask,
    answer,
    ask_of,
    declaration_from,
    keep,
    last_waiters,
    load_states,
    lock_states,
    rank_in,
    wait_for_keys,
)
from rota.store.releases import pass_gates
from rota.store.rows import to_json
from rota.store.script import Row, Script, query
from rota.store.tx import Tx, share_gates
from rota.store.waits import fitting, let_through

_PAGE = 2_000  # rows of one look at who has keys
_SWEPT = 100  # keys of one look at who waits
_BESIDE = 10  # runs that are told anew when they may go, beside those that go
_RETOLD = 1_000  # runs that are told anew when what they wait for has changed
_INEXACT = 1_000_000  # microseconds by which a run may be told a wrong time
_MAY_HAVE_KEYS = frozenset(
    {RunState.QUEUED, RunState.CLAIMED, RunState.PROCESSING, RunState.UNKNOWN}
)
Change: TypeAlias = tuple[str, str, str, str]  # kind, project, name and document of a declaration
_AFTER_PREFIX = "0"  # comes right after the slash that ends a prefix
_MOST = 100  # declarations, and keys of each, that are looked at at once
_COMMITTED = 10 * SECOND  # so late somebody may see a change at most
_KINDS = tuple(f"{kind}:" for kind in KeyKind)  # others lock by rows beside them


@dataclass(frozen=True, slots=True)
class KeyCursor:
    """Where the next look at keys goes on."""

    key: Key = ""  # among those who have keys
    seq: int = 0
    waited: Key = ""  # among the keys that runs wait for
    at: int = 0  # whose time had come by then, has been looked at
    told: frozenset[Change] = frozenset()  # of what changed of late, who waits for it knows
    is_rekeying: bool = False  # runs are to take keys that were declared after them

    @property
    def is_start(self) -> bool:
        return not self.key and not self.waited


def release(tx: Tx, limit: int, cursor: KeyCursor) -> Script[tuple[int, KeyCursor]]:
    """Look at keys that were freed, whose time has come, and at some more that runs wait for.

    Returns how many runs went or wait for something else now, and where the next look goes on.
    """
    old, cursor = yield from _left_behind(cursor, limit)
    swept, cursor = yield from _sweep(cursor)
    changed, told = yield from changed_keys(cursor.at, cursor.told)
    due = {row["key"] for row in (yield query("due_keys", now=tx.now, limit=limit))}
    keys = {row["key"] for row in old} | swept | due | changed
    states = yield from load_states(tx.now, keys)
    rooms = {key: _room(states.get(key), tx.now, limit) for key in keys}
    wanted = {key: room for key, room in rooms.items() if room or key in due | changed}
    count = (yield from _let_go(tx, wanted, changed, limit)) if wanted else 0
    yield from _clear(old)
    is_rekeying = bool((yield query("rekeying")))
    return count, replace(cursor, at=tx.now, told=told, is_rekeying=is_rekeying)


def _left_behind(cursor: KeyCursor, limit: int) -> Script[tuple[list[Row], KeyCursor]]:
    """Rows of keys that runs have no more, of so many keys at most."""
    page = yield query("run_key_page", after_key=cursor.key, after_seq=cursor.seq, limit=_PAGE)
    old = [row for row in page if row["state"] not in _MAY_HAVE_KEYS]
    freed = list(dict.fromkeys(row["key"] for row in old))
    if len(freed) > limit:
        return [row for row in old if row["key"] <= freed[limit - 1]], cursor
    if len(page) < _PAGE:
        return old, replace(cursor, key="", seq=0)
    return old, replace(cursor, key=page[-1]["key"], seq=page[-1]["seq"])


def _clear(old: Sequence[Row]) -> Script[None]:
    """The last thing, as it locks whatever runs are free to be locked."""
    if old:
        keys = {row["key"] for row in old}
        yield query("forget_run_keys", keys=keys, seqs={row["seq"] for row in old})
        yield query("forget_shared_keys", keys=keys)


def _sweep(cursor: KeyCursor) -> Script[tuple[set[Key], KeyCursor]]:
    """Some keys that runs wait for: nothing is forgotten for ever, whoever failed to tell of it."""
    keys: list[Key] = []
    for kind in sorted(KeyKind):
        first, end = f"{kind}:", f"{kind};"  # between them are all keys of the kind
        if len(keys) < _SWEPT and cursor.waited < end:
            after, limit = max(first, cursor.waited), _SWEPT - len(keys)
            rows = yield query("waited_shared_keys", after=after, until=end, limit=limit)
            keys += [row["key"] for row in rows]
    return set(keys), replace(cursor, waited=keys[-1] if len(keys) == _SWEPT else "")


def _room(state: KeyState | None, now: int, limit: int) -> int:
    return limit if state is None else min(room_of(state, now), limit)


def _let_go(tx: Tx, rooms: Mapping[Key, int], changed: Collection[Key], limit: int) -> Script[int]:
    most = min(max(rooms.values()), limit // len(rooms) + 1) + _BESIDE
    found = yield from _first(rooms.keys() - changed, most)
    if changed:
        found += yield from _first(changed, _RETOLD // len(changed) + _BESIDE)
    rows = yield from _lock_waiters(found, rooms)
    if not rows:
        return 0
    short, kept = yield from answer(tx.now, [_ask_again(row) for row in rows], freed=rooms)
    passing = [row for row in rows if row["id"] not in short]
    moved = yield from _tell(tx.now, [row for row in rows if row["id"] in short], short, changed)
    if passing:
        yield from pass_gates(tx, passing, _enter)
    yield from keep(tx.now, kept)
    return len(passing) + moved


def _ask_again(row: Row) -> Ask:
    since = max(row["created_at"], row["release_at"], row["claimed_at"] or 0)
    return ask_of(row)._replace(wait=Wait(row["blocked_on"], since))


def _first(keys: Collection[Key], most: int) -> Script[list[Row]]:
    """The first to go of those who wait for each key, so many."""
    ends = yield from last_waiters(keys)
    queues = sorted({(row["key"], row["priority"]) for row in ends})
    asked = [{"key": key, "priority": priority} for key, priority in queues]
    waiting: dict[Key, dict[str, Row]] = defaultdict(dict)
    for row in (yield query("key_candidates", keys=to_json(asked), limit=most)) if asked else ():
        waiting[row["key"]][row["id"]] = row
    return [row for rows in waiting.values() for row in nsmallest(most, rows.values(), rank_in)]


def _enter(tx: Tx, rows: Sequence[Row], counting: Collection[Kind]) -> Script[None]:
    yield from let_through(tx, (yield from fitting(tx, rows)), counting)


def _lock_waiters(found: Sequence[Row], keys: Collection[Key]) -> Script[list[Row]]:
    """Those of these runs that nobody else is about to change, the first to go first."""
    carts = {row["cart"] for row in found} - {None}
    if carts:
        yield from share_gates(carts)
    # The key keeper waits for nobody: gates and runs that are locked are found by its next look.
    locked = yield from lock_free_gates({row["job_id"] for row in found})
    ids = [row["id"] for row in found if row["job_id"] in locked]
    rows = (yield query("key_waiters_to_release", ids=ids, keys=keys)) if ids else ()
    return sorted((row for row in rows if row["cart"] in {None, *carts}), key=rank_in)


def _tell(
    now: int,
    rows: Sequence[Row],
    short: Mapping[str, Sequence[Shortage]],
    changed: Collection[Key],
) -> Script[int]:
    """Let runs wait on, where that is news to them; returns how many wait for another key now."""
    news = {
        row["seq"]: short[row["id"]]
        for row in rows
        if row["blocked_on"] in changed or _is_news(now, row, short[row["id"]])
    }
    yield from wait_for_keys(news)
    return sum(1 for row in rows if row["blocked_on"] != short[row["id"]][0].key)


def _is_news(now: int, row: Row, short: Sequence[Shortage]) -> bool:
    key, told, at = short[0].key, row["eligible_at"], short[0].eligible_at
    if row["blocked_on"] != key or (told is None) != (at is None):
        return True
    return told is not None and at is not None and (told <= now or abs(at - told) > _INEXACT)


def changed_keys(
    since: int, known: Collection[Change]
) -> Script[tuple[set[Key], frozenset[Change]]]:
    """Keys whose rule has changed since then, and by what; changes that are `known` are old."""
    rows = yield query("changed_declarations", since=since - _COMMITTED, limit=_MOST)
    changes = {(row["kind"], row["project"], row["name"], row["document"]): row for row in rows}
    keys: set[Key] = set()
    for change in changes.keys() - set(known):
        keys |= yield from _keys_under(declaration_from(changes[change]))
    return keys, frozenset(changes)


def _keys_under(declaration: Declaration) -> Script[set[Key]]:
    """Those of a declaration; where each job or user has one, those that somebody waits for."""
    prefix = prefix_of(declaration)
    if prefix is None:
        return set(keys_of(declaration))
    until = prefix[:-1] + _AFTER_PREFIX
    rows = yield query("waited_shared_keys", after=prefix, until=until, limit=_MOST)
    return {row["key"] for row in rows}


def forget(tx: Tx, after: Key, limit: int) -> Script[tuple[int, Key]]:
    """Look at so many keys; returns how many are forgotten, and after which key to go on.

    `exclusive_by` and limits with `each` make new ones all the time.
    """
    page = [row["key"] for row in (yield query("shared_key_page", after=after, limit=limit))]
    rest = page[-1] if len(page) == limit else ""
    keys = [key for key in page if key.startswith(_KINDS)]
    if not keys:
        return 0, rest
    states = yield from lock_states(tx.now, keys)
    idle = [key for key in keys if key not in states or is_untouched(states[key], tx.now)]
    if idle:
        yield query("drop_shared_keys", keys=idle)
    unruled = [key for key in keys if key not in states]
    if unruled:
        yield query("take_key_charges", keys=unruled)
    return len(idle), rest
