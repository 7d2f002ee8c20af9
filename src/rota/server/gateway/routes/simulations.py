"""What if: the time ahead without and with a change."""

from __future__ import annotations

from rota.domain.quantities import parse_duration
from rota.operations.simulations import Change, simulate_change
from rota.server.gateway.shapes.simulation import ComparisonShape, SimulationBody
from rota.server.gateway.wiring import Project, UsedBackends, api_router

router = api_router("simulations")


@router.post("/simulations")
async def simulate(
    backends: UsedBackends, project: Project, body: SimulationBody
) -> ComparisonShape:
    """How runs would wait and workers be used, as things are and after a change.

    At most seven days ahead. It only reads: nothing is changed, and nothing is held up.
    """
    change = Change(body.add_workers, body.move, body.without)
    found = await simulate_change(backends, project, change, parse_duration(body.length))
    return ComparisonShape.of(found)
