"""Whether anything will wait at all: mostly nothing does, and that is found out quickly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import le

from rota.domain.forecast.ahead import JobAhead, RunAhead


def all_start_at_once(
    slots: Mapping[str, int], going: Iterable[RunAhead], coming: Iterable[RunAhead]
) -> bool:
    """Whether every run that comes finds a slot at its time, and room in the limit of its job.

    Any slot of a pool will do for each of them.
    """
    bounds = _Bounds(slots)
    for run in going:
        bounds.enter(run, run.start_at)
    for run in coming:
        bounds.enter(run, run.ready_at)
    return bounds.are_enough


@dataclass(slots=True)
class _Bound:
    """What so many runs may be in at most, with when each comes and goes."""

    most: int
    comes: list[float] = field(default_factory=list)
    goes: list[float] = field(default_factory=list)

    @property
    def is_enough(self) -> bool:
        """Whether somebody has always gone before one more comes than there may be."""
        self.comes.sort()
        self.goes.sort()
        return all(map(le, self.goes, islice(self.comes, self.most, None)))


class _Bounds:
    """The slots of pools and the limits of jobs."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._slots = slots
        self._pools: dict[str, _Bound] = {}
        self._groups: dict[str, _Bound] = {}
        self._of_jobs: dict[JobAhead, tuple[_Bound, ...]] = {}

    @property
    def are_enough(self) -> bool:
        return all(bound.is_enough for bound in chain(self._pools.values(), self._groups.values()))

    def enter(self, run: RunAhead, at: float) -> None:
        bounds = self._of_jobs.get(run.job)
        if bounds is None:
            bounds = self._of_jobs[run.job] = tuple(self._bounds(run.job))
        end = at + run.seconds
        for bound in bounds:
            bound.comes.append(at)
            bound.goes.append(end)

    def _bounds(self, job: JobAhead) -> Iterator[_Bound]:
        yield self._pools.setdefault(job.pool, _Bound(self._slots.get(job.pool, 0)))
        if job.limit is not None:
            group = self._groups.setdefault(job.group, _Bound(job.limit))
            group.most = min(group.most, job.limit)
            yield group
