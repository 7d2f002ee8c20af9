"""Specs of job versions that were used lately, and the due times that they give."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime

from rota.domain.carts.definition import CartTemplate
from rota.domain.errors import Invalid
from rota.domain.following import follow_words
from rota.domain.ids import JobId
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.schedule import Timetable, compile_schedule, describe
from rota.domain.spec import JobSpec
from rota.ports.store import Store

Ref = tuple[JobId, int]  # a job and its version


class SpecCache:
    """Cache of a bounded number of specs, those used last.

    To read a definition costs more than to fire it: what the scheduler read while it looked ahead,
    the dispatcher need not read once the run is due.
    """

    def __init__(self, capacity: int = 5_000) -> None:
        self._capacity = capacity
        self._specs: OrderedDict[Ref, JobSpec] = OrderedDict()

    def __len__(self) -> int:
        return len(self._specs)

    def remember(self, ref: Ref, spec: JobSpec) -> None:
        self._specs[ref] = spec
        self._specs.move_to_end(ref)
        if len(self._specs) > self._capacity:
            self._specs.popitem(last=False)

    def get(self, ref: Ref) -> JobSpec | None:
        """Return a cached spec; None: it is not cached."""
        return self._specs.get(ref)

    def of(self, job: Job) -> JobSpec:
        """Return the spec of a job as it is now. `Invalid` if this release cannot read it."""
        ref = (job.id, job.version)
        spec = self._specs.get(ref) or read_job(job.document)
        self.remember(ref, spec)
        return spec

    async def find(self, store: Store, refs: Collection[Ref]) -> dict[Ref, JobSpec]:
        """Return those of these specs that this version of Rota can read."""
        found = {ref: self._specs[ref] for ref in refs if ref in self._specs}
        missing = [ref for ref in refs if ref not in found]
        documents = await store.documents(missing) if missing else {}
        for ref, document in documents.items():
            with suppress(Invalid):
                found[ref] = read_job(document)
        for ref, spec in found.items():
            self.remember(ref, spec)
        return found


def timetable(spec: JobSpec, anchor: datetime) -> Timetable | None:
    """Compile the due times of a job; None: on demand only."""
    if spec.schedule is None:
        return None
    return compile_schedule(spec.schedule, key=f"{spec.project}/{spec.name}", anchor=anchor)


def timetable_of(job: Job) -> Timetable | None:
    """Compile the due times of a stored job. `Invalid` if this release cannot read it."""
    return timetable(read_job(job.document), job.anchor)


def cart_timetable(project: str, template: CartTemplate, anchor: datetime) -> Timetable | None:
    """Compile when a template becomes a cart by itself; None: on demand only."""
    if template.schedule is None:
        return None
    key = f"{project}/cart/{template.name}"
    return compile_schedule(template.schedule, key=key, anchor=anchor)


def words_of(spec: JobSpec, anchor: datetime) -> str:
    """Describe when a job runs by itself, in words; "" on demand."""
    table = timetable(spec, anchor)
    after = f"after {', '.join(map(follow_words, spec.after.follows))}" if spec.after.jobs else ""
    return ", ".join(part for part in (describe(table) if table else "", after) if part)


def words_if_readable(job: Job) -> str:
    """Describe when a stored job runs by itself; "" also if this release cannot read it."""
    try:
        return words_of(read_job(job.document), job.anchor)
    except Invalid:
        return ""


def stamp(time: datetime) -> str:
    """Format an instant in UTC: `2030-01-01 12:00:00 UTC`."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
