"""Runs that wait for a worker which could ever take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.domain.gates import Admission
from rota.domain.states import RunState
from rota.store.rows import reasons_to
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.crews import Crews, PoolShape
from rota.store.scripts.letting_go import let_waiters_go
from rota.store.tx import Tx


def any_unfit() -> Script[bool]:
    """Whether runs wait for a worker that could ever take them."""
    return bool((yield query("unfit_keys")))


def release_fitting(tx: Tx, limit: int) -> Script[int]:
    """Runs pass the gates again for which a worker has come; at most `limit` of each demand."""
    released = 0
    keys = {(row["pool"], row["shape"]): row["key"] for row in (yield query("unfit_keys"))}
    unfit = yield from Crews().unfit(tx.now, keys)  # as it is, whatever anybody remembers
    for demand in sorted(keys.keys() - unfit.keys()):
        released += yield from let_waiters_go(tx, keys[demand], limit)
    return released


def fitting(tx: Tx, rows: Sequence[Row]) -> Script[list[Row]]:
    """Those of these waiting runs that a worker could take; the others wait for one."""
    unfit = yield from tx.memory.crews.unfit(tx.now, map(_pool_shape, rows))
    if not unfit:
        return list(rows)
    yield from _block(tx, [row for row in rows if _pool_shape(row) in unfit], unfit)
    return [row for row in rows if _pool_shape(row) not in unfit]


def _pool_shape(row: Row) -> PoolShape:
    return row["pool"], row["shape"]


def _block(tx: Tx, rows: Sequence[Row], unfit: Mapping[PoolShape, Admission]) -> Script[None]:
    yield Many("block_run", [_values(unfit[_pool_shape(row)], row) for row in rows])
    news = [row["id"] for row in rows if row["state"] != RunState.BLOCKED]
    if news:
        yield tx.record("run.blocked", news, actor="scheduler")


def _values(admission: Admission, row: Row) -> tuple[str, str | None, str]:
    """For `block_run`, in its order."""
    return admission.blocked_on, reasons_to(admission.reasons), row["id"]
