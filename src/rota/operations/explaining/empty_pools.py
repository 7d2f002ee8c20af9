"""Queued runs of pools without workers: to whoever looks at them they are blocked.

Nothing of this is stored: the first worker of a pool finds its runs in their lines, however many
there are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rota.domain.run import Run
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.explaining.workers import no_worker
from rota.ports.records import RunQuery


async def find_shown(backends: Backends, query: RunQuery) -> list[Run]:
    """The runs of a query as people see them, also in what it says about states."""
    served = await backends.store.served_pools()
    found = await backends.store.runs(replace(query, served=served))
    return [_seen(run, served) for run in found]


async def all_shown(backends: Backends, runs: Sequence[Run]) -> list[Run]:
    """The same runs as people see them."""
    if not any(run.state is RunState.QUEUED for run in runs):
        return [*runs]
    served = await backends.store.served_pools()
    return [_seen(run, served) for run in runs]


async def shown(backends: Backends, run: Run) -> Run:
    """The same run as people see it."""
    [seen] = await all_shown(backends, [run])
    return seen


def _seen(run: Run, served: Collection[str]) -> Run:
    if run.state is not RunState.QUEUED or run.pool in served:
        return run
    return replace(run, state=RunState.BLOCKED, reasons=(no_worker(run.pool, served),))
