"""Work as it comes from a server: checked as a whole, and split by what is executed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from rota.domain.errors import Unavailable
from rota.domain.git import COMMIT
from rota.domain.probes import probe_spec
from rota.domain.spec import JobSpec
from rota.ports.executor import JobBatch
from rota.ports.work import (
    MAX_FENCE,
    MAX_INSTANT,
    MIN_INSTANT,
    UNREADABLE,
    Fence,
    JobRef,
    WorkBatch,
)

_inputs = msgspec.json.Decoder(dict[str, Any])


def by_job(
    batch: WorkBatch,
    fences: Sequence[Fence],
    specs: Mapping[JobRef, JobSpec],
    held: AbstractSet[Fence],
) -> Iterator[JobBatch]:
    """Yield the attempts of each job version, without those that came before."""
    for ref, positions in batch.by_job().items():
        spec = specs.get(ref) or JobSpec(ref[0])
        for executed, its in _without_probes(spec, batch, positions):
            of_job = [fences[at] for at in its]
            job = JobBatch(executed, batch.part(its), of_job).without(held)
            if len(job):
                yield job


def checked(batch: WorkBatch) -> list[Fence]:
    """Return the fences; raise `Unavailable` if the columns do not fit one another."""
    count, jobs = len(batch), len(batch.jobs)
    positions = range(count)
    sparse = (
        batch.inputs,
        batch.deadlines,
        batch.carts,
        batch.handles,
        batch.commits,
        batch.probes,
    )
    is_sound = (
        len(batch.numbers) == count
        and len(batch.due_at) == count
        and len(batch.job_of) in (0, count)
        and (jobs > 0 or not count)
        and (not batch.job_of or (min(batch.job_of) >= 0 and max(batch.job_of) < jobs))
        and _are_within(0, batch.numbers, MAX_FENCE)
        and _are_within(MIN_INSTANT, batch.due_at, MAX_INSTANT)
        and _are_within(MIN_INSTANT, batch.deadlines.values(), MAX_INSTANT)
        and all(at in positions for each in sparse for at in each)
        and _are_within(0, [probed.number for probed in batch.probes.values()], MAX_FENCE)
        and all(map(COMMIT.fullmatch, batch.commits.values()))
        and all(batch.runs)
        and "".join(batch.runs).isprintable()
    )
    fences = batch.fences() if is_sound else []
    if not is_sound or len(set(fences)) < count or not _are_readable(batch.inputs.values()):
        raise Unavailable("the server sent work that makes no sense")
    return fences


def _without_probes(
    spec: JobSpec, batch: WorkBatch, positions: Sequence[int]
) -> Iterator[tuple[JobSpec, Sequence[int]]]:
    """Yield what is executed of a job version, and where: its steps, and its probe."""
    if not batch.probes or spec.probe is None:  # what cannot be read is refused as a whole
        yield spec, positions
        return
    asking = [at for at in positions if at in batch.probes]
    if asking:
        yield probe_spec(spec), asking
    yield spec, [at for at in positions if at not in batch.probes]


def _are_within(least: int, values: Collection[int], most: int) -> bool:
    return not values or (min(values) >= least and max(values) <= most)


def _are_readable(inputs: Iterable[str]) -> bool:
    try:
        for text in inputs:
            _inputs.decode(text)
    except UNREADABLE:
        return False
    return True
