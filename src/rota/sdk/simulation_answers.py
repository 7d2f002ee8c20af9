"""What the server says about a change that somebody thinks about. Lengths of time are seconds."""

from __future__ import annotations

from rota.api.simulations import (
    Comparison,
    SimulatedJob,
    SimulatedPriority,
    SimulatedSaturation,
    SimulatedShare,
    SimulatedUse,
    SimulationReport,
    Waits,
)

__all__ = [
    "Comparison",
    "SimulatedJob",
    "SimulatedPriority",
    "SimulatedSaturation",
    "SimulatedShare",
    "SimulatedUse",
    "SimulationReport",
    "Waits",
]
