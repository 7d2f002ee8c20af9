"""Queued runs of pools without workers: they tell so wherever they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.domain.run import Run
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.explaining.workers import no_worker, served_pools


async def with_empty_pools(backends: Backends, runs: Sequence[Run]) -> list[Run]:
    """The same runs, each that is queued where nobody serves with that as its reason."""
    if not any(run.state is RunState.QUEUED for run in runs):
        return [*runs]
    served = served_pools(await backends.store.sessions(alive_only=True))
    return [
        replace(run, reasons=(no_worker(run.pool, served),))
        if run.state is RunState.QUEUED and run.pool not in served
        else run
        for run in runs
    ]
