"""Simulator: the decisions of the scheduler on a virtual clock, in a world in memory.

It knows no store and no real time; whoever uses it says what comes, and sees what happens.
"""

from __future__ import annotations

from rota.domain.simulation.model import Observer, SimRun, SimWorker, Start, Starts
from rota.domain.simulation.world import World

__all__ = ["Observer", "SimRun", "SimWorker", "Start", "Starts", "World"]
