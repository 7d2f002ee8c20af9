"""Simulations that need no server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from rota.domain.simulation.replay import Tell, simulate_workload, untold
from rota.domain.simulation.report import (
    JobResult,
    Report,
    Saturation,
    ShareResult,
    Throughput,
    Use,
    Waits,
    report_document,
)
from rota.domain.simulation.workload import Period
from rota.domain.simulation.workload_file import read_workload
from rota.domain.spec import DEFAULT_POOL

__all__ = [
    "DEFAULT_POOL",
    "JobResult",
    "Report",
    "Saturation",
    "ShareResult",
    "Simulation",
    "Throughput",
    "Use",
    "Waits",
    "report_document",
    "simulate_text",
]

# A Monday, at midnight: what a simulated day looks like must not depend on when it is asked for.
_BEGINS_AT = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Simulation:
    """How a workload is to be simulated."""

    length: timedelta
    part: float = 1.0  # of the workload
    seed: int = 1  # the same seed finds the same


def simulate_text(text: str, simulation: Simulation, tell: Tell = untold) -> Report:
    """Simulate the workload of a file; `Invalid` says what is wrong with it.

    `tell` is called now and then with the part that is done, from 0 to 1.
    """
    workload = read_workload(text)
    period = Period(_BEGINS_AT, simulation.length)
    random = Random(simulation.seed)  # noqa: S311 - no secret, and it must repeat itself
    return simulate_workload(workload, period, simulation.part, random, tell)
