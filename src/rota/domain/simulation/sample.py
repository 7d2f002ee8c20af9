"""A part of a workload that is too large to simulate whole."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from rota.domain.limits import Declaration, Limit, Resource, Sharing
from rota.domain.simulation.workload import JobMix, Poisson, Workload


def sample_of(workload: Workload, part: float, random: Random) -> Workload:
    """The same workload with this part of its workers, runs, tokens and units.

    Waits come out longer than in the whole: a small crowd evens out less than a large one.
    """
    if part == 1:
        return workload
    return replace(
        workload,
        workers=[
            replace(each, count=max(1, round(each.count * part))) for each in workload.workers
        ],
        jobs=[_scaled_job(job, part, random) for job in workload.jobs],
        declared=[_scaled(each, part) for each in workload.declared],
    )


def _scaled_job(job: JobMix, part: float, random: Random) -> JobMix:
    if isinstance(job.arrivals, Poisson):
        return replace(job, arrivals=replace(job.arrivals, mean=job.arrivals.mean * part))
    whole, rest = divmod(job.schedules * part, 1)
    return replace(job, schedules=int(whole) + (random.random() < rest))


def _scaled(declared: Declaration, part: float) -> Declaration:
    match declared:
        case Limit():
            return replace(declared, per=declared.per / part, burst=_some(declared.burst, part))
        case Resource(sharing=Sharing.COUNTED):
            return replace(declared, total=_some(declared.total, part))
        case _:
            return declared


def _some(amount: int, part: float) -> int:
    return max(1, round(amount * part))
