"""A workload, simulated."""

from __future__ import annotations

from random import Random

from rota.domain.simulation.arrivals import Period, arrivals
from rota.domain.simulation.measures import Measures
from rota.domain.simulation.report import Background, Report, report_of
from rota.domain.simulation.sample import sample_of
from rota.domain.simulation.workload import Workload
from rota.domain.simulation.world import World


def simulate_workload(workload: Workload, period: Period, part: float, random: Random) -> Report:
    """What happens to a part of a workload in a period. `Invalid` if that is too much."""
    sample = sample_of(workload, part, random)
    staff = sample.staff()
    measures = Measures(staff, period.seconds)
    world = World(staff, sample.rules, sample.weights)
    world.simulate(arrivals(sample, period, random), period.seconds, measures)
    jobs = workload.jobs
    return report_of(
        measures,
        Background(
            workers=len(staff),
            part=part,
            weights=workload.weights,
            start_within={job.name: job.start_within for job in jobs if job.start_within},
            output_bytes={job.name: job.output_bytes for job in jobs},
        ),
    )
