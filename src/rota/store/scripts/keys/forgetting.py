"""Forgetting keys that stand as if nobody had ever used them."""

from __future__ import annotations

from rota.domain.key_gates import is_untouched
from rota.domain.keys import Key, KeyKind
from rota.store.script import Script, query
from rota.store.scripts.keys.states import hold_states
from rota.store.tx import Tx

_KINDS = tuple(f"{kind}:" for kind in KeyKind)  # others lock by rows beside them


def forget(tx: Tx, after: Key, limit: int) -> Script[tuple[int, Key]]:
    """Look at so many keys; returns how many are forgotten, and after which key to go on.

    `exclusive_by` and limits with `each` make new ones all the time.
    """
    page = [row["key"] for row in (yield query("shared_key_page", after=after, limit=limit))]
    rest = page[-1] if len(page) == limit else ""
    keys = [key for key in page if key.startswith(_KINDS)]
    if not keys:
        return 0, rest
    states = yield from hold_states(tx.now, keys)
    idle = [key for key in keys if key not in states or is_untouched(states[key], tx.now)]
    if idle:
        yield query("drop_shared_keys", keys=idle)
    unruled = [key for key in keys if key not in states]
    if unruled:
        yield query("take_key_charges", keys=unruled)
    return len(idle), rest
