"""People who trigger runs, hold and cancel them, and resolve UNKNOWN ones."""

from __future__ import annotations

from datetime import timedelta

from rota.domain.errors import Conflict
from rota.domain.ids import JobId, RunId, scheduled_run_id
from rota.domain.run import Run, Trigger
from rota.domain.states import WAITING_STATES, RunState
from rota.ports.records import NewRun
from testkit.universes.catalogue import KnownJob, catalogue
from testkit.universes.surroundings import Surroundings
from testkit.universes.world import World

_USERS = ("ann", "bob")


class People:
    """People, with a record of what they were promised."""

    def __init__(self, world: World, surroundings: Surroundings) -> None:
        self._world = world
        self._timeline = surroundings.timeline
        self._witness = surroundings.witness
        self._random = surroundings.random
        self._jobs = [job for job in catalogue().values() if not job.rules.after]
        # So that its runs get in one another's way.
        self._favourite = self._random.choice(self._jobs)
        self.promised: list[RunId] = []  # in the order of their acknowledgement
        self.resolved: set[RunId] = set()  # resolved by a person
        self._held: list[Run] = []

    async def submit(self) -> None:
        """Trigger some runs of one job."""
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
            inputs=job.wish(self._random),
            at=later if is_for_later else None,
        )

    async def cancel(self) -> None:
        if self.promised:
            run = self._random.choice(self.promised)
            concerned = await self._world.runs.cancel([run], actor="ann")
            if concerned:
                self._witness.cancelled(run)

    async def hold(self) -> None:
        """Hold one of the waiting runs, whoever triggered it."""
        runs = await self._world.all_runs()
        held = {run.id for run in self._held}
        waiting = [run for run in runs if run.state in WAITING_STATES and run.id not in held]
        if waiting:
            run = self._random.choice(waiting)
            await self._world.waiting.hold_run(run.id, actor="bob")
            self._witness.held(run.id)
            self._held.append(run)

    async def let_go(self) -> None:
        """Release the run that was held first; it may have been cancelled meanwhile."""
        if self._held:
            run, was_held = self._held.pop(0), True
            try:
                await self._world.waiting.let_go(run.id, actor="bob")
            except Conflict:
                was_held = False
            self._witness.let_go(run.id, was_held=was_held, in_cart=run.cart is not None)

    async def let_all_go(self) -> None:
        while self._held:
            await self.let_go()

    async def resolve(self, runs: list[RunId]) -> None:
        for run in runs:
            state = self._random.choice((RunState.COMPLETED, RunState.FAILED, RunState.SCHEDULED))
            self._witness.resolved(run, state)
            await self._world.runs.resolve(run, state, actor="bob")
            self.resolved.add(run)
