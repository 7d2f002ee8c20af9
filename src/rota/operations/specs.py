"""The specs of job versions that were needed lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress

from rota.domain.errors import Invalid
from rota.domain.ids import JobId
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.spec import JobSpec
from rota.ports.store import Store

Ref = tuple[JobId, int]  # a job and its version


class SpecBook:
    """Remembers a bounded number of specs, those used last.

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
        """None: it is not remembered."""
        return self._specs.get(ref)

    def of(self, job: Job) -> JobSpec:
        """The spec of a job as it is now. `Invalid` if this version of Rota cannot read it."""
        ref = (job.id, job.version)
        spec = self._specs.get(ref) or read_job(job.document)
        self.remember(ref, spec)
        return spec

    async def find(self, store: Store, refs: Collection[Ref]) -> dict[Ref, JobSpec]:
        """Those of these specs that this version of Rota can read."""
        found = {ref: self._specs[ref] for ref in refs if ref in self._specs}
        missing = [ref for ref in refs if ref not in found]
        documents = await store.documents(missing) if missing else {}
        for ref, document in documents.items():
            with suppress(Invalid):
                found[ref] = read_job(document)
        for ref, spec in found.items():
            self.remember(ref, spec)
        return found
