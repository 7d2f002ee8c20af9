"""Due runs of jobs that come after others, put in line with what they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from rota.domain.forecast.due_lines import DueLine, DueRun
from rota.domain.gates import after_key
from rota.domain.ids import JobId
from rota.domain.spec import Overlap
from rota.operations.forecast_inputs import Inputs
from rota.operations.forecast_jobs import JobsAhead


def due_lines(
    inputs: Inputs,
    jobs: JobsAhead,
    waiting: Mapping[JobId, Sequence[DueRun]],
    coming: Mapping[JobId, Sequence[DueRun]],
) -> dict[JobId, DueLine]:
    """The lines of all jobs of which due runs wait, or will come."""
    completed = {after_key(*job): inputs.seconds_to(at) for job, at in inputs.completions.items()}
    return {
        job: _line(jobs, job, [*waiting.get(job, ()), *coming.get(job, ())], completed)
        for job in {**waiting, **coming}
    }


def _line(
    jobs: JobsAhead, job: JobId, runs: list[DueRun], completed: Mapping[str, float]
) -> DueLine:
    rules, upstreams = jobs.rules.get(job), jobs.upstreams(job)
    within = rules.after_within if rules else None
    return DueLine(
        upstreams=upstreams,
        overlap=rules.overlap if rules else Overlap.ALLOW,
        runs=sorted(runs, key=lambda due: due.since),
        completed={key: completed[key] for key in upstreams if key in completed},
        within=inf if within is None else within.total_seconds(),
    )
