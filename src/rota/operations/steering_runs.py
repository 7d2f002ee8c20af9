"""Steering one run that waits: hold it, let it go, move it."""

from __future__ import annotations

from rota.domain.errors import Invalid
from rota.domain.run import Run
from rota.domain.spec import GREATEST_PRIORITY, LEAST_PRIORITY
from rota.operations.backends import Backends
from rota.operations.runs import find_run


async def hold(backends: Backends, run: Run, *, actor: str) -> Run:
    """It goes nowhere until it is let go. `Conflict`: it does not wait."""
    backends.announce(await backends.store.hold_run(run.id, actor=actor))
    return await find_run(backends, run.id, project=run.project)


async def let_go(backends: Backends, run: Run, *, actor: str) -> Run:
    """It waits again like any other. `Conflict`: nobody holds it."""
    backends.announce(await backends.store.let_go(run.id, actor=actor))
    return await find_run(backends, run.id, project=run.project)


async def set_priority(backends: Backends, run: Run, priority: int, *, actor: str) -> Run:
    """Let it stand in another line. `Conflict`: it does not wait."""
    if not LEAST_PRIORITY <= priority <= GREATEST_PRIORITY:
        raise Invalid(
            f"a priority is from {LEAST_PRIORITY} to {GREATEST_PRIORITY}, not {priority}",
            code="bad_priority",
            hint=f"{GREATEST_PRIORITY} goes first",
        )
    backends.announce(await backends.store.set_priority(run.id, priority, actor=actor))
    return await find_run(backends, run.id, project=run.project)
