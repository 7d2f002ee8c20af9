"""Runs that wait for a worker which could ever take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.domain.gates import Admission
from rota.domain.states import RunState
from rota.ports.records import Released
from rota.store.rows import reasons_to
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.crews import Crews, PoolShape
from rota.store.scripts.effects import Effects, record
from rota.store.scripts.letting_go import let_waiters_go
from rota.store.scripts.rules import RulesBook


def any_unfit() -> Script[bool]:
    """Whether runs wait for a worker that could ever take them."""
    return bool((yield query("unfit_keys")))


def release_fitting(now: int, limit: int, book: RulesBook) -> Script[Released]:
    """Runs pass the gates again for which a worker has come; at most `limit` of each demand."""
    effects, released = Effects(), 0
    keys = {(row["pool"], row["shape"]): row["key"] for row in (yield query("unfit_keys"))}
    unfit = yield from Crews().unfit(now, keys)  # as it is, whatever anybody remembers
    for demand in sorted(keys.keys() - unfit.keys()):
        released += yield from let_waiters_go(now, keys[demand], limit, book, effects)
    wakes = yield from effects.conclude()
    return Released(released, wakes)


def fitting(now: int, rows: Sequence[Row], effects: Effects) -> Script[list[Row]]:
    """Those of these waiting runs that a worker could take; the others wait for one."""
    unfit = yield from effects.memory.crews.unfit(now, map(_pool_shape, rows))
    if not unfit:
        return list(rows)
    yield from _block(now, [row for row in rows if _pool_shape(row) in unfit], unfit)
    return [row for row in rows if _pool_shape(row) not in unfit]


def _pool_shape(row: Row) -> PoolShape:
    return row["pool"], row["shape"]


def _block(now: int, rows: Sequence[Row], unfit: Mapping[PoolShape, Admission]) -> Script[None]:
    yield Many("block_run", [_values(unfit[_pool_shape(row)], row) for row in rows])
    news = [row["id"] for row in rows if row["state"] != RunState.BLOCKED]
    if news:
        yield record("run.blocked", now, news, actor="scheduler")


def _values(admission: Admission, row: Row) -> tuple[str, str | None, str]:
    """For `block_run`, in its order."""
    return admission.blocked_on, reasons_to(admission.reasons), row["id"]
