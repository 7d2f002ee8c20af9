"""Runs that nothing else may go beside, because they have lost workers again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rota.domain.shape import alone, demand_of
from rota.store.script import Many, Row, Script, lock, query


def set_apart(runs: Iterable[Row]) -> Script[None]:
    """From their next attempt on these go alone."""
    seqs: dict[str, list[int]] = defaultdict(list)
    for run in runs:
        seqs[alone(run["shape"])].append(run["seq"])
    if not seqs:
        return
    yield Many("keep_shape", [(shape,) for shape in sorted(seqs)])
    for shape in sorted(seqs):
        yield query("set_shape", shape=shape, seqs=seqs[shape])


def forget_lone_shapes() -> Script[None]:
    """Once nobody goes alone, claims need not place runs one by one."""
    shapes = [row["id"] for row in (yield query("shapes"))]
    lone = sorted(shape for shape in shapes if demand_of(shape).is_alone)
    if lone:
        yield lock("shapes", ids=lone)
        yield query("forget_shapes", ids=lone)
