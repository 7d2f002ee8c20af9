"""Keys whose rule somebody has changed: who waits for them was told what is no longer true."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from rota.domain.keys import SECOND, Declaration, Key, keys_of, prefix_of
from rota.store.script import Script, query
from rota.store.scripts.keys.states import declaration_from

Change: TypeAlias = tuple[str, str, str, str]  # kind, project, name and document of a declaration
_AFTER_PREFIX = "0"  # comes right after the slash that ends a prefix
_MOST = 100  # declarations, and keys of each, that are looked at at once
_COMMITTED = 10 * SECOND  # so late somebody may see a change at most


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
