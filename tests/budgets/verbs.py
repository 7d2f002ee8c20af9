"""What a run costs the store: the verbs that every run passes, each called with a batch of runs.

They are called as servers call them, on the port alone, while a number of other runs wait. Ids
are the same each time, so that a batch is the same work each time.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rota.domain.ids import JobId, RunId, SessionId, micros
from rota.domain.run import Trigger
from rota.ports.records import Finished, Firing, JobQuery, NewRun, Ownership
from rota.ports.store import Store
from testkit.builders import MINUTE, Scene, firing_of, new_job, outcome, reported

BATCH = 100
BATCHES = 3  # that are prepared: two warm up, as a store remembers what it has read, and one counts

_JOB = JobId("j_000000000000")
_SLOTS = 10_000


class Verb(ABC):
    """A verb of the store, with what it needs to be called `BATCHES` times."""

    backlogs = (100, 5_000)  # few and many runs that wait meanwhile

    def __init__(self) -> None:
        self._ids: Iterator[RunId] = (RunId(f"r_{number:024}") for number in itertools.count())

    async def prepare(self, scene: Scene, backlog: int) -> None:
        """Have a worker, a job, `backlog` runs of it that wait, and what the batches need."""
        self.worker = await self.add_worker(scene)
        await scene.job("crowd", job_id=_JOB, **self.rules())
        await self.prepare_runs(scene, backlog)

    def rules(self) -> Mapping[str, Any]:
        """Those of the job."""
        return {}

    async def add_worker(self, scene: Scene) -> SessionId:
        return await scene.worker(slots=_SLOTS)

    @abstractmethod
    async def prepare_runs(self, scene: Scene, backlog: int) -> None: ...

    @abstractmethod
    async def call(self, store: Store) -> int:
        """Call the verb for the next batch; returns how many runs it concerned."""
        ...

    def new_runs(self, count: int, **fields: Any) -> list[NewRun]:
        return [
            NewRun(next(self._ids), _JOB, 1, Trigger.MANUAL, "user", **fields) for _ in range(count)
        ]


class Submit(Verb):
    """Runs of one job are submitted."""

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await scene.store.submit(self.new_runs(backlog))

    async def call(self, store: Store) -> int:
        return len((await store.submit(self.new_runs(BATCH))).runs)


class Release(Verb):
    """Runs whose time has come pass the gates of their job, of which others wait in the queue.

    Those have come the same way: retries, delayed runs and returned ones all do.
    """

    backlogs = (2_000, 20_000)

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        for count in (backlog, BATCH * BATCHES):
            await scene.store.submit(self.new_runs(count, at=scene.clock.instant + MINUTE))
            scene.advance(MINUTE)
            if count == backlog:
                while await scene.store.release_eligible(1_000):
                    pass

    async def call(self, store: Store) -> int:
        return await store.release_eligible(BATCH)


class Due(Verb):
    """Runs that are due at the same moment pass the gates of their job; more of them wait."""

    backlogs = (2_000, 20_000)

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        runs = self.new_runs(backlog + BATCH * BATCHES, at=scene.clock.instant + MINUTE)
        await scene.store.submit(runs)
        scene.advance(MINUTE)

    async def call(self, store: Store) -> int:
        return await store.release_eligible(BATCH)


class Fit(Verb):
    """Runs that no worker could take are let go as one comes that can; more of them wait."""

    backlogs = (2_000, 20_000)

    def rules(self) -> Mapping[str, Any]:
        return {"needs": {"site": "fra"}}

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await scene.store.submit(self.new_runs(backlog + BATCH * BATCHES))
        await scene.worker("able", slots=_SLOTS, labels={"site": "fra"})

    async def call(self, store: Store) -> int:
        return await store.release_fitting(BATCH)


class Fire(Verb):
    """Schedules are due, each of a job of its own that ran before; runs of another job wait."""

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        due, ids = scene.clock.instant, [JobId(f"j_{n + 1:012}") for n in range(BATCH * BATCHES)]
        jobs = [new_job(job_id, due, job_id=job_id, next_at=due) for job_id in ids]
        await scene.store.save_jobs(jobs, removed=(), actor="editor")
        self._ownership: Ownership = await scene.ownership()
        await scene.store.fire(await self._plan(scene, ids), self._ownership)
        works = await scene.claim(self.worker, len(ids))
        await scene.start(self.worker, works)
        await scene.finish(self.worker, works)
        await scene.store.submit(self.new_runs(backlog))
        scene.advance(MINUTE)
        self._firings = iter(await self._plan(scene, ids))

    async def _plan(self, scene: Scene, ids: Sequence[JobId]) -> list[Firing]:
        found = await scene.store.jobs(JobQuery(ids=ids, limit=len(ids)))
        next_at = scene.clock.instant + MINUTE
        return [firing_of(job, next_at=next_at) for job in sorted(found, key=lambda job: job.id)]

    async def call(self, store: Store) -> int:
        firings = list(itertools.islice(self._firings, BATCH))
        return len((await store.fire(firings, self._ownership)).accepted)


class Claim(Verb):
    """Runs are given to a worker; more of them wait."""

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await scene.store.submit(self.new_runs(backlog + BATCH * BATCHES))

    async def call(self, store: Store) -> int:
        return len((await store.claim(self.worker, BATCH)).batch)


class Finish(Verb):
    """A worker reports that runs have ended well; more of them wait."""

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await scene.store.submit(self.new_runs(backlog + BATCH * BATCHES))
        works = [work for _ in range(BATCHES) for work in await scene.claim(self.worker, BATCH)]
        await scene.start(self.worker, works)
        at = micros(scene.clock.instant)
        self._outcomes = iter([outcome(work, at=at) for work in works])

    async def call(self, store: Store) -> int:
        report = reported(*itertools.islice(self._outcomes, BATCH))
        assert await store.finish(self.worker, report) == Finished()
        return len(report)


VERBS: Mapping[str, type[Verb]] = {
    "submit": Submit,
    "release": Release,
    "due": Due,
    "fit": Fit,
    "fire": Fire,
    "claim": Claim,
    "finish": Finish,
}
