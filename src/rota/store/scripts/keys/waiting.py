"""Runs that wait for keys which are short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.domain.key_gates import reasons_of
from rota.domain.keys import Shortage
from rota.store.rows import reasons_to, to_json
from rota.store.script import Rows, Script, query


def wait_for_keys(short: Mapping[int, Sequence[Shortage]]) -> Script[Rows]:
    """Let runs, by their numbers, wait for the first key that each is short of.

    Returns their ids and lines.
    """
    values = [
        {
            "seq": seq,
            "key": each[0].key,
            "reasons": reasons_to(reasons_of(each)),
            "eligible_at": each[0].eligible_at,
        }
        for seq, each in short.items()
    ]
    return (yield query("block_on_keys", runs=to_json(values))) if values else ()
