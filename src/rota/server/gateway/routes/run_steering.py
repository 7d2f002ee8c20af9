"""Steering one run that waits: hold, release, another priority."""

from __future__ import annotations

from rota.operations import runs
from rota.operations.why import see_run
from rota.server.gateway.auth import Operator
from rota.server.gateway.shapes.run import PriorityBody, RunShape
from rota.server.gateway.wiring import NamedRun, UsedBackends, api_router

router = api_router("runs")


@router.post("/runs/{run}:hold")
async def hold_run(actor: Operator, backends: UsedBackends, run: NamedRun) -> RunShape:
    """Keep a run that waits from starting until it is released."""
    return RunShape.of(await runs.hold(backends, run, actor=actor.name))


@router.post("/runs/{run}:release")
async def release_run(actor: Operator, backends: UsedBackends, run: NamedRun) -> RunShape:
    """End a hold: the run waits again like any other."""
    released = await runs.let_go(backends, run, actor=actor.name)
    return RunShape.of(await see_run(backends, released))


@router.post("/runs/{run}:reprioritise")
async def reprioritise_run(
    actor: Operator, backends: UsedBackends, run: NamedRun, body: PriorityBody
) -> RunShape:
    """Give a run that waits another priority."""
    moved = await runs.set_priority(backends, run, body.priority, actor=actor.name)
    return RunShape.of(await see_run(backends, moved))
