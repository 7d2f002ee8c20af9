"""How keys stand, as the transaction at hand sees it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import msgspec

from rota.domain.key_gates import PROMISED, Rank, Waiter, Waiters, rank_of
from rota.domain.keys import (
    Bucket,
    Declaration,
    DeclarationId,
    Key,
    KeyKind,
    KeyRule,
    KeyState,
    Limit,
    Quota,
    Rate,
    Resource,
    declaration_of,
    rule_of,
)
from rota.domain.spec import PRIORITIES
from rota.store.rows import to_json
from rota.store.script import Many, Row, Rows, Script, query
from rota.store.scripts.keys.charging import take_charges, with_charges

_DECODERS: Mapping[KeyKind, msgspec.json.Decoder[Declaration]] = {
    KeyKind.RATE: msgspec.json.Decoder(Limit),
    KeyKind.RESOURCE: msgspec.json.Decoder(Resource),
    KeyKind.QUOTA: msgspec.json.Decoder(Quota),
}


def declaration_from(row: Row) -> Declaration:
    return _DECODERS[KeyKind(row["kind"])].decode(row["document"])


def load_states(now: int, keys: Collection[Key]) -> Script[dict[Key, KeyState]]:
    """How these keys stand; those without a rule are left out."""
    rules = yield from rules_of(keys)
    rates = [key for key, rule in rules.items() if isinstance(rule, Rate)]
    rows = (yield query("shared_keys", keys=rates)) if rates else ()
    buckets = yield from with_charges(rules, _buckets(rules, rows))
    return (yield from _states(now, rules, buckets))


def hold_states(now: int, keys: Collection[Key]) -> Script[dict[Key, KeyState]]:
    """The same; nobody else takes of any of these keys before the transaction has ended."""
    rows = yield from hold_keys(keys)
    rules = yield from rules_of(keys)
    buckets = yield from take_charges(rules, _buckets(rules, rows))
    return (yield from _states(now, rules, buckets))


def hold_keys(keys: Collection[Key]) -> Script[Rows]:
    """Lock keys, in their order."""
    rows = yield query("hold_shared_keys", keys=sorted(keys))
    missing = set(keys) - {row["key"] for row in rows}
    if missing:
        yield Many("add_shared_key", [(key,) for key in sorted(missing)])
        rows = yield query("hold_shared_keys", keys=sorted(keys))
    return rows


def load_waiters(ranks: Mapping[Key, Rank]) -> Script[dict[Key, Waiters]]:
    """Who waits for these keys, and who of them goes before runs of the given ranks."""
    known: dict[Key, list[Waiter]] = defaultdict(list)
    for row in (yield from ends_of_lines(ranks)):
        known[row["key"]].append(Waiter(rank_in(row), row["eligible_at"]))
    return {key: Waiters.before(ranks[key], waiting) for key, waiting in known.items()}


def ends_of_lines(keys: Collection[Key]) -> Script[Rows]:
    """The first and the last of those of each priority who wait for these keys."""
    asked = [{"key": key, "priority": priority} for key in keys for priority in PRIORITIES]
    return (yield query("key_waiters", keys=to_json(asked))) if asked else ()


def rank_in(row: Row) -> Rank:
    return rank_of(row["priority"], row["created_at"], row["seq"])


def rules_of(keys: Collection[Key]) -> Script[dict[Key, KeyRule]]:
    """The rules of these keys; those without one are left out."""
    ids = {declaration_of(key) for key in keys}
    declared = yield from _declared({each for each in ids if each[0] is not KeyKind.EXCLUSIVE})
    rules = {key: rule_of(key, declared) for key in keys}
    return {key: rule for key, rule in rules.items() if rule is not None}


def _declared(ids: Iterable[DeclarationId]) -> Script[dict[DeclarationId, Declaration]]:
    kinds, projects, names = ({each[i] for each in ids} for i in range(3))
    if not kinds:
        return {}
    rows = yield query("declarations_of_keys", kinds=kinds, projects=projects, names=names)
    return {
        (KeyKind(row["kind"]), row["project"], row["name"]): declaration_from(row) for row in rows
    }


def _states(
    now: int, rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket]
) -> Script[dict[Key, KeyState]]:
    rows = (yield query("key_amounts", keys=rules, since=now - PROMISED)) if rules else ()
    amounts = {row["key"]: (row["held"], row["queued"]) for row in rows}
    return {
        key: KeyState(rule, *amounts.get(key, (0, 0)), buckets.get(key))
        for key, rule in rules.items()
    }


def _buckets(rules: Mapping[Key, KeyRule], rows: Rows) -> dict[Key, Bucket]:
    """Those that are not full, or were not when somebody last took of them."""
    return {
        row["key"]: Bucket(rule, row["level"], row["at"])
        for row in rows
        if row["level"] is not None and isinstance(rule := rules.get(row["key"]), Rate)
    }
