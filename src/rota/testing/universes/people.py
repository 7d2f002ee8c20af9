"""Those who ask for runs, cancel them, and say what became of the UNKNOWN ones."""

from __future__ import annotations

from datetime import timedelta

from rota.domain.ids import JobId, RunId, scheduled_run_id
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.ports.records import NewRun
from rota.testing.universes.catalogue import HOSTS, KnownJob, catalogue
from rota.testing.universes.surroundings import Surroundings
from rota.testing.universes.world import World

_USERS = ("ann", "bob")


class People:
    """They remember what they were promised."""

    def __init__(self, world: World, surroundings: Surroundings) -> None:
        self._world = world
        self._timeline = surroundings.timeline
        self._witness = surroundings.witness
        self._random = surroundings.random
        self._jobs = list(catalogue().values())
        self._favourite = self._random.choice(
            self._jobs
        )  # so that its runs get in one another's way
        self.promised: list[RunId] = []  # in the order of their acknowledgement
        self.resolved: set[RunId] = set()  # ended by a person's word

    async def submit(self) -> None:
        """Some runs of one job."""
        job = self._random.choice((self._favourite, self._random.choice(self._jobs)))
        new = [self._wish(job, number) for number in range(self._random.choice((1, 1, 2, 5)))]
        self._witness.note("submit", (job.name, *(each.id for each in new)))
        self.promised += (await self._world.runs.submit(new)).runs

    def _wish(self, job: KnownJob, number: int) -> NewRun:
        now = self._timeline.clock.instant
        is_for_later = self._random.random() < 0.2
        later = now + timedelta(seconds=self._random.randint(1, 20))
        return NewRun(
            id=scheduled_run_id(JobId(f"wish {len(self.promised) + number}"), now),
            job_id=job.id,
            job_version=1,
            trigger=Trigger.MANUAL,
            created_by=self._random.choice(_USERS),
            inputs={"host": self._random.choice(HOSTS)} if job.rules.exclusive_by else None,
            at=later if is_for_later else None,
        )

    async def cancel(self) -> None:
        if self.promised:
            run = self._random.choice(self.promised)
            concerned, _ = await self._world.runs.cancel([run], actor="ann")
            if concerned:
                self._witness.cancelled(run)

    async def resolve(self, runs: list[RunId]) -> None:
        for run in runs:
            state = self._random.choice((RunState.COMPLETED, RunState.FAILED, RunState.SCHEDULED))
            self._witness.resolved(run)
            await self._world.runs.resolve(run, state, actor="bob")
            self.resolved.add(run)
