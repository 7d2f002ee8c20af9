"""What is kept of keys for runs that could have it, but wait for another key still."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rota.domain.key_gates import Kept
from rota.domain.keys import Key
from rota.store.script import Many, Script, query
from rota.store.scripts.keys.states import rank_in

_FORGOTTEN = 100  # rows at a time


def load_kept(now: int, keys: Collection[Key]) -> Script[dict[Key, Kept]]:
    """What is kept of these keys. It ends by itself: with its time, or with the wait of its run."""
    rows = (yield query("kept_keys", keys=keys, now=now)) if keys else ()
    return {
        row["key"]: Kept(rank_in(row), row["amount"], row["until"], row["waits_for"])
        for row in rows
    }


def keep(now: int, new: Mapping[Key, Kept]) -> Script[None]:
    """Let others see what is kept from now on, and forget some of what is kept no more."""
    if not new:
        return
    yield Many(
        "keep_key",
        [(key, it.rank[1], it.amount, it.until, it.waits_for) for key, it in sorted(new.items())],
    )
    yield query("forget_kept_keys", now=now, limit=_FORGOTTEN)
