"""Jobs, runs and workers of the time ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.domain.forecast.ahead import Durations, JobAhead, RunAhead, Setting, Source
from rota.domain.ids import JobId
from rota.domain.resources import SLOTS, UNIT
from rota.domain.simulation.model import SimWorker


def lasting(seconds: float, low: float | None = None, high: float | None = None) -> Durations:
    return Durations(
        seconds if low is None else low, seconds, seconds if high is None else high, Source.HISTORY
    )


def job(name: str = "job", seconds: float = 10.0, **fields: Any) -> JobAhead:
    known: dict[str, Any] = {
        "durations": lasting(seconds),
        "group": name,
        "is_plain": True,
        "share": "default/me",
    }
    return JobAhead(JobId(f"j_{name}"), "default", name, **(known | fields))


def runs(job: JobAhead, *ready: float) -> list[RunAhead]:
    """One for each time at which it could start."""
    return [RunAhead(job, at, at, job.durations.usual) for at in ready]


def workers(*slots: int, pool: str = "default", **capacity: int) -> list[SimWorker]:
    """One with so many slots each, and so much of anything else."""
    more = {name: amount * UNIT for name, amount in capacity.items()}
    return [
        SimWorker(f"{pool}-{number}", pool, {SLOTS: count * UNIT, **more})
        for number, count in enumerate(slots)
    ]


def setting(*slots: int) -> Setting:
    return Setting(workers(*slots))


def starts(runs: Sequence[RunAhead]) -> list[float]:
    return [run.start_at for run in runs]
