"""Verbs of the store that every run passes, each called with a batch of runs to count its cost.

They are called as servers call them, on the port alone, while a number of other runs wait. Ids
are the same each time, so that a batch is the same work each time.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.domain.ids import JobId, RunId, SessionId, micros
from rota.domain.run import AttemptResult, Trigger
from rota.domain.spec import Overlap, Retry
from rota.ports.records import Finished, Firing, JobQuery, NewRun, Ownership, PlannedRun
from rota.ports.store import Store
from rota.ports.work import RUNNING, StepNote, StepOutcome, Work
from testkit.builders import MINUTE, Scene, firing_of, new_job, outcome, reported

BATCH = 100
BATCHES = 3  # that are prepared: two warm up, as a store remembers what it has read, and one counts

_JOB = JobId("j_000000000000")
_SLOTS = 10_000

Multiply = Callable[[int], Awaitable[None]]


class Verb(ABC):
    """A verb of the store, with what it needs to be called `BATCHES` times."""

    backlogs = (100, 5_000)  # few and many runs that wait meanwhile

    def __init__(self, multiply: Multiply) -> None:
        # Copies the youngest run that waits so often: in a moment, however many are wanted.
        self.multiply = multiply
        self._ids: Iterator[RunId] = (RunId(f"r_{number:024}") for number in itertools.count())

    async def prepare(self, scene: Scene, backlog: int) -> None:
        """Have a worker, a job, `backlog` runs of it that wait, and what the batches need."""
        self.worker = await self.add_worker(scene)
        await scene.job("crowd", job_id=_JOB, **self.rules(scene.clock.instant))
        await self.prepare_runs(scene, backlog)

    def rules(self, now: datetime) -> Mapping[str, Any]:
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

    async def has_worked(self, store: Store) -> bool:
        """Return whether all calls led to what they should, where their answers do not tell."""
        return True

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
        runs = self.new_runs(BATCH * BATCHES + 1, at=scene.clock.instant + MINUTE)
        await scene.store.submit(runs)
        await self.multiply(backlog)
        scene.advance(MINUTE)

    async def call(self, store: Store) -> int:
        return await store.release_eligible(BATCH)


class TryAgain(Verb):
    """Runs that failed pass the gates again after their back-off; more of them wait."""

    backlogs = (2_000, 20_000)

    def rules(self, now: datetime) -> Mapping[str, Any]:
        return {"retry": Retry(attempts=2, delay=MINUTE)}

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await scene.store.submit(self.new_runs(BATCH * BATCHES + 1))
        works = await scene.claim(self.worker, _SLOTS)
        await scene.start(self.worker, works)
        await scene.finish(self.worker, works, AttemptResult.FAILED)
        await self.multiply(backlog)
        scene.advance(2 * MINUTE)

    async def call(self, store: Store) -> int:
        return await store.release_eligible(BATCH)


class Fit(Verb):
    """Runs that no worker could take are let go as one comes that can; more of them wait."""

    backlogs = (2_000, 20_000)

    def rules(self, now: datetime) -> Mapping[str, Any]:
        return {"needs": {"site": "fra"}}

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await scene.store.submit(self.new_runs(BATCH * BATCHES + 1))
        await self.multiply(backlog)
        await scene.worker("able", slots=_SLOTS, labels={"site": "fra"})

    async def call(self, store: Store) -> int:
        return await store.release_fitting(BATCH)


class Slot(Verb):
    """Runs of a job with `max_concurrency` end, and as many go that waited for a slot."""

    backlogs = (2_000, 20_000)

    def rules(self, now: datetime) -> Mapping[str, Any]:
        return {"max_concurrency": BATCH * BATCHES}

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await self.submit(scene, BATCH * BATCHES * 2 + 1)
        await self.multiply(backlog)
        works = await scene.claim(self.worker, _SLOTS)
        await scene.start(self.worker, works)
        self._works: Iterator[Work] = iter(works)
        self._at = micros(scene.clock.instant)

    async def submit(self, scene: Scene, count: int) -> None:
        await scene.store.submit(self.new_runs(count))

    async def call(self, store: Store) -> int:
        ended = [outcome(work, at=self._at) for work in itertools.islice(self._works, BATCH)]
        assert await store.finish(self.worker, reported(*ended)) == Finished()
        return len(ended)

    async def has_worked(self, store: Store) -> bool:
        return (await store.counts()).runs["QUEUED", "default"] == BATCH * BATCHES


class DueSlot(Slot):
    """The same, of runs that a schedule asked for and that count at the gate while they wait."""

    def rules(self, now: datetime) -> Mapping[str, Any]:
        return {**super().rules(now), "overlap": Overlap.ALLOW, "next_at": now}

    async def submit(self, scene: Scene, count: int) -> None:
        now = scene.clock.instant
        due = [now - timedelta(microseconds=count - number) for number in range(count)]
        await scene.fire(_JOB, runs=[PlannedRun(at, at) for at in due])


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


class Note(Verb):
    """A worker tells how runs stand that go on; more of them wait."""

    async def prepare_runs(self, scene: Scene, backlog: int) -> None:
        await scene.store.submit(self.new_runs(backlog + BATCH))
        self._works = await scene.claim(self.worker, BATCH)
        self._times = itertools.count(1)

    async def call(self, store: Store) -> int:
        at, step = next(self._times), StepOutcome("build", RUNNING, started_at=1)
        notes = [StepNote(work.run, work.number, at, 0, (step,), at) for work in self._works]
        return len(await store.tell_notes(self.worker, notes))


VERBS: Mapping[str, type[Verb]] = {
    "submit": Submit,
    "release": Release,
    "due": Due,
    "retry": TryAgain,
    "fit": Fit,
    "slot": Slot,
    "due_slot": DueSlot,
    "fire": Fire,
    "claim": Claim,
    "finish": Finish,
    "note": Note,
}
