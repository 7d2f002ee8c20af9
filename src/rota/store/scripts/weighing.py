"""The weights of shares, and where their lines stand."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.ids import instant
from rota.domain.order import entitled, group_of
from rota.ports.forecasts import LineState, ShareWeight
from rota.store.script import Script, lock, query
from rota.store.scripts.lines import chain_from
from rota.store.tx import Tx


def share_weights() -> Script[list[ShareWeight]]:
    rows = yield query("share_weights")
    return [
        ShareWeight(row["share"], row["weight"], row["updated_by"], instant(row["updated_at"]))
        for row in rows
    ]


def set_weight(tx: Tx, share: str, weight: float, *, actor: str) -> Script[None]:
    """It counts from the next claim on, for the lines that there are and for those to come."""
    yield query("set_share_weight", share=share, weight=weight, actor=actor, now=tx.now)
    lines = [row["id"] for row in (yield query("chains_of_share", share=share))]
    if lines:
        yield lock("chains", ids=lines)
        is_group = int(group_of(share) == share)
        yield query("weigh_chains", ids=lines, share=share, weight=weight, is_group=is_group)
    yield tx.record("share.weighted", [share], actor=actor, weight=weight)


def add_shares(tx: Tx, shares: Sequence[str], actor: str) -> Script[None]:
    """Shares that nobody has weighed yet get the weight that all have."""
    for share in sorted(shares):
        if (yield query("add_share", share=share, actor=actor, now=tx.now)):
            yield tx.record("share.weighted", [share], actor=actor, weight=1.0)


def lines(pool: str) -> Script[list[LineState]]:
    """The active ones with the weights that count among them, the others with their own."""
    rows = yield query("lines_of_pool", pool=pool)
    active = entitled([chain_from(row) for row in rows if row["active"]])
    weights = {chain.id: chain.weight for chain in active}
    return [
        LineState(
            share=row["share"],
            priority=row["priority"],
            tag=row["tag"],
            weight=weights[row["id"]] if row["active"] else row["weight"],
            is_active=bool(row["active"]),
        )
        for row in rows
    ]
