"""Queued runs of pools without workers: to whoever looks at them they are blocked.

Nothing of this is stored: the first worker of a pool finds its runs in their lines, however many
there are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rota.domain.run import Run
from rota.domain.states import RunState, seen_state
from rota.operations.backends import Backends
from rota.operations.explaining.workers import no_worker
from rota.ports.records import RunQuery


async def see_runs(backends: Backends, query: RunQuery) -> list[Run]:
    """The runs of a query as people see them, also in what it says about states."""
    served = await backends.store.served_pools()
    found = await backends.store.runs(replace(query, served=served))
    return [see(run, served) for run in found]


async def see_run(backends: Backends, run: Run) -> Run:
    """The same run as people see it."""
    if run.state is not RunState.QUEUED:
        return run
    return see(run, await backends.store.served_pools())


def see(run: Run, served: Collection[str]) -> Run:
    """A run as people see it while these pools have workers."""
    state = seen_state(run.state, is_served=run.pool in served)
    if state is run.state:
        return run
    return replace(run, state=state, reasons=(no_worker(run.pool, served),))
