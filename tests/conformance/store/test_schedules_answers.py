"""Every due time has one answer, whoever changes its schedule meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from rota.domain.errors import Conflict
from rota.domain.job import Job
from rota.domain.states import RunState
from rota.ports.records import Answered, Rearmed, RemovedJob, RunQuery, ScheduleMove
from testkit.builders import MINUTE, Scene, firing_of, new_job

pytestmark = pytest.mark.anyio


async def due_job(scene: Scene) -> Job:
    return await scene.show_job(await scene.job(next_at=scene.clock.instant))


def missed(first: datetime, count: int, cause: str = "downtime") -> Answered:
    """As many due times, a minute apart."""
    return Answered(first, first + (count - 1) * MINUTE, count, RunState.MISSED, cause)


def going_on(stretch: Answered, by: int) -> Answered:
    """Three more, so many due times after the end of a stretch."""
    first = stretch.last + by * MINUTE
    return replace(missed(first, 3), previous=first - MINUTE)


def skip(job: Job, *answered: Answered, next_at: datetime | None = None) -> ScheduleMove:
    return ScheduleMove(
        kind="skipped",
        job_id=job.id,
        expected_schedule_version=job.schedule_version,
        expected_next_at=job.next_at,
        enabled=True,
        paused=False,
        next_at=next_at,
        held_from=None,
        answered=answered,
    )


class TestWhatIsAnswered:
    async def test_firing_answers_up_to_its_last_due_time(self, scene: Scene) -> None:
        job = await due_job(scene)
        now = scene.clock.instant

        await scene.fire_all([firing_of(job, now, answered=[missed(now + MINUTE, 3)])])

        assert (await scene.show_job(job.id)).answered_to == now + 3 * MINUTE

    async def test_skipping_answers_what_is_to_come(self, scene: Scene) -> None:
        job = await due_job(scene)
        later = scene.clock.instant + MINUTE

        await scene.store.move_schedules([skip(job, missed(later, 1))], actor="operator")

        assert (await scene.show_job(job.id)).answered_to == later

    async def test_it_never_goes_back(self, scene: Scene) -> None:
        job = await due_job(scene)
        now = scene.clock.instant
        await scene.store.move_schedules(
            [skip(job, missed(now + MINUTE, 1), next_at=now)], actor="operator"
        )

        await scene.fire(job.id)
        changed = await scene.change(job.id, next_at=now + 2 * MINUTE)

        assert changed.answered_to == now + MINUTE


class TestStretchesThatMeet:
    async def ledger(self, scene: Scene, *stretches: Answered) -> list[tuple[int, str]]:
        """What is left of stretches that are recorded one after another."""
        job = await due_job(scene)
        start = scene.clock.instant
        for stretch in stretches:
            job = await scene.show_job(job.id)
            await scene.store.move_schedules([skip(job, stretch)], actor="operator")
        entries = await scene.store.ledger(job.id, start, start + timedelta(days=1), 10)
        return [(entry.count, entry.cause) for entry in entries]

    async def test_the_longer_one_is_not_lost(self, scene: Scene) -> None:
        now = scene.clock.instant

        found = await self.ledger(scene, missed(now, 1, "skip next"), missed(now, 5))

        assert found == [(5, "skip next")]

    async def test_the_shorter_one_takes_nothing_away(self, scene: Scene) -> None:
        now = scene.clock.instant

        found = await self.ledger(scene, missed(now, 5), missed(now, 2))

        assert found == [(5, "downtime")]

    async def test_one_that_goes_on_is_counted_with_it(self, scene: Scene) -> None:
        first = missed(scene.clock.instant, 3)

        found = await self.ledger(scene, first, going_on(first, by=1))

        assert found == [(6, "downtime")]

    async def test_one_after_a_run_stands_for_itself(self, scene: Scene) -> None:
        first = missed(scene.clock.instant, 3)

        found = await self.ledger(scene, first, going_on(first, by=2))

        assert found == [(3, "downtime"), (3, "downtime")]

    async def test_one_that_is_told_again_is_not_counted_again(self, scene: Scene) -> None:
        first = missed(scene.clock.instant, 5)
        again = replace(missed(first.first, 3), previous=first.first - MINUTE)

        found = await self.ledger(scene, first, again)

        assert found == [(5, "downtime")]

    async def test_one_that_begins_inside_another_stands_for_itself(self, scene: Scene) -> None:
        first = missed(scene.clock.instant, 5)

        found = await self.ledger(scene, first, going_on(first, by=-1))

        assert found == [(5, "downtime"), (3, "downtime")]


class TestChangesOfWhatIsOverdue:
    async def test_a_move_answers_it_first(self, scene: Scene) -> None:
        job = await due_job(scene)
        next_at = scene.clock.instant + MINUTE
        overdue = firing_of(job, next_at=next_at)
        move = replace(skip(job, next_at=None), expected_next_at=next_at, overdue=overdue)

        await scene.store.move_schedules([move], actor="operator")

        [run] = await scene.store.runs(RunQuery(job_id=job.id))
        assert (run.due_at, run.state) == (job.next_at, RunState.QUEUED)

    async def test_a_save_answers_it_first_for_the_old_version(self, scene: Scene) -> None:
        job = await due_job(scene)
        new = new_job(job.name, scene.clock.instant, job_id=job.id, expected_version=1)

        await scene.store.save_jobs(
            [replace(new, overdue=firing_of(job))], removed=(), actor="editor"
        )

        [run] = await scene.store.runs(RunQuery(job_id=job.id))
        assert (run.job_version, (await scene.show_job(job.id)).version) == (1, 2)

    async def test_what_fired_meanwhile_refuses_both(self, scene: Scene) -> None:
        job = await due_job(scene)
        move = replace(skip(job), overdue=firing_of(job))
        new = new_job(job.name, scene.clock.instant, job_id=job.id, expected_version=1)
        await scene.fire(job.id)

        with pytest.raises(Conflict):
            await scene.store.move_schedules([move], actor="operator")
        with pytest.raises(Conflict) as conflict:
            await scene.store.save_jobs(
                [replace(new, overdue=firing_of(job))], removed=(), actor="editor"
            )

        assert conflict.value.code == "schedule_moved"
        assert (await scene.show_job(job.id)).version == 1


class TestSchedulesThatMovedUnseen:
    async def test_a_rearmed_schedule_has_moved(self, scene: Scene) -> None:
        job = await due_job(scene)
        await scene.fire(job.id, next_at=None, waits=True)
        seen = await scene.show_job(job.id)
        session = await scene.worker()
        await scene.finish(session, await scene.claim(session))

        await scene.store.rearm([Rearmed(job.id, seen.schedule_version, None)])

        with pytest.raises(Conflict):
            await scene.store.move_schedules([skip(seen)], actor="operator")

    async def test_a_save_that_saw_another_is_refused(self, scene: Scene) -> None:
        job = await due_job(scene)
        await scene.move("paused", job.id)
        new = new_job(job.name, scene.clock.instant, job_id=job.id, expected_version=1)
        unseen = replace(new, expected_schedule_version=job.schedule_version)

        with pytest.raises(Conflict) as conflict:
            await scene.store.save_jobs([unseen], removed=(), actor="editor")

        assert conflict.value.code == "schedule_moved"

    async def test_a_removal_that_saw_another_is_refused(self, scene: Scene) -> None:
        job = await due_job(scene)
        await scene.move("paused", job.id)

        with pytest.raises(Conflict):
            await scene.store.save_jobs(
                [], removed=[RemovedJob(job.id, job.schedule_version)], actor="editor"
            )

    async def test_a_removal_records_what_is_open(self, scene: Scene) -> None:
        job = await due_job(scene)
        now = scene.clock.instant
        removed = RemovedJob(job.id, job.schedule_version, job.cursor, [missed(now, 2, "deleted")])

        await scene.store.save_jobs([], removed=[removed], actor="editor")

        [entry] = await scene.store.ledger(job.id, now, now + 5 * MINUTE, 10)
        assert (entry.count, entry.cause) == (2, "deleted")
