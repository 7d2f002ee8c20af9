"""Schedules that wait: for the end of a run or a pause, or stuck behind their own runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Conflict
from rota.domain.ids import JobId
from rota.domain.job import Job
from rota.domain.lateness import Congestion
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Answered, Event, NewJob, Rearmed, RunQuery, ScheduleMove
from testkit.builders import MINUTE, Scene, new_job

pytestmark = pytest.mark.anyio
HOUR = timedelta(hours=1)


async def waiting_job(scene: Scene) -> Job:
    """A job that has fired and goes on when its run has ended."""
    job_id = await scene.job(next_at=scene.clock.instant)
    await scene.fire(job_id, next_at=None, waits=True)
    return await scene.show_job(job_id)


async def end_run(scene: Scene) -> None:
    session = await scene.worker()
    await scene.finish(session, await scene.claim(session))


async def waiting(scene: Scene) -> list[JobId]:
    return [wait.job_id for wait in await scene.store.ended_waits(10)]


async def rearm(scene: Scene, job: Job, delay: timedelta | None = MINUTE) -> Job:
    next_at = None if delay is None else scene.clock.instant + delay
    await scene.store.rearm([Rearmed(job.id, job.schedule_version, next_at)])
    return await scene.show_job(job.id)


class TestWaitingForTheEndOfARun:
    async def test_an_active_run_keeps_the_schedule_waiting(self, scene: Scene) -> None:
        await waiting_job(scene)

        assert await waiting(scene) == []

    async def test_the_end_of_the_run_is_told(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        ended_at = scene.advance(MINUTE)
        await end_run(scene)
        scene.advance(MINUTE)

        [wait] = await scene.store.ended_waits(10)

        assert (wait.job_id, wait.ended_at, wait.job_version) == (job.id, ended_at, job.version)

    async def test_runs_that_somebody_triggered_do_not_count(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        await scene.trigger(job.id)
        session = await scene.worker(slots=1)
        [scheduled] = await scene.claim(session, 1)
        await scene.finish(session, [scheduled])

        assert await waiting(scene) == [job.id]

    async def test_a_cancelled_run_has_ended(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        [run] = await scene.store.runs(RunQuery(job_id=job.id))
        await scene.store.cancel([run.id], actor="operator")

        assert await waiting(scene) == [job.id]

    async def test_a_lost_attempt_is_not_the_end(self, scene: Scene) -> None:
        await waiting_job(scene)
        session = await scene.worker()
        await scene.claim(session)
        await scene.store.end_session(session)

        assert await waiting(scene) == []

    async def test_rearming_ends_the_wait(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        await end_run(scene)

        rearmed = await rearm(scene, job)

        assert (rearmed.next_at, rearmed.waits) == (scene.clock.instant + MINUTE, False)
        assert await waiting(scene) == []

    async def test_a_schedule_that_is_over_waits_no_more(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        await end_run(scene)

        rearmed = await rearm(scene, job, None)

        assert (rearmed.next_at, rearmed.waits) == (None, False)
        assert await waiting(scene) == []

    async def test_a_schedule_that_moved_meanwhile_is_left_alone(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        await end_run(scene)
        changed = await scene.change(job.id, next_at=scene.clock.instant + HOUR)

        rearmed = await rearm(scene, job)

        assert rearmed.next_at == changed.next_at

    async def test_a_schedule_that_waits_again_is_not_rearmed_by_an_old_reader(
        self, scene: Scene
    ) -> None:
        job = await waiting_job(scene)
        await scene.change(job.id, next_at=scene.clock.instant + MINUTE)
        scene.advance(MINUTE)
        await scene.fire(job.id, next_at=None, waits=True)

        rearmed = await rearm(scene, job)

        assert (rearmed.next_at, rearmed.waits) == (None, True)

    async def test_a_schedule_that_is_over_is_not_brought_back(self, scene: Scene) -> None:
        job_id = await scene.job(next_at=scene.clock.instant)
        await scene.fire(job_id, next_at=None)

        rearmed = await rearm(scene, await scene.show_job(job_id))

        assert rearmed.next_at is None

    async def test_an_edit_of_the_due_times_ends_the_wait(self, scene: Scene) -> None:
        job = await waiting_job(scene)

        changed = await scene.change(job.id, next_at=None)
        await end_run(scene)

        assert not changed.waits
        assert await waiting(scene) == []

    async def test_an_edit_of_something_else_does_not_end_the_wait(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        same = new_job(job.name, scene.clock.instant, job_id=job.id, expected_version=job.version)

        await scene.store.save_jobs([replace(same, restarts=False)], removed=(), actor="editor")
        await end_run(scene)

        assert await waiting(scene) == [job.id]

    async def test_a_schedule_that_is_held_at_a_due_time_waits_for_nothing(
        self, scene: Scene
    ) -> None:
        job = await waiting_job(scene)
        await end_run(scene)
        held_from = scene.clock.instant + HOUR
        move = ScheduleMove(
            "paused",
            job.id,
            job.schedule_version,
            None,
            enabled=True,
            paused=True,
            next_at=None,
            held_from=held_from,
        )
        await scene.store.move_schedules([move], actor="operator")
        held = await scene.show_job(job.id)

        assert await waiting(scene) == []
        assert (await rearm(scene, held)).held_from == held_from

    async def test_rearming_twice_counts_once(self, scene: Scene) -> None:
        job = await waiting_job(scene)
        await end_run(scene)
        first = await rearm(scene, job)

        second = await rearm(scene, job, HOUR)

        assert second.next_at == first.next_at

    @pytest.mark.parametrize("kind", ["paused", "disabled"])
    async def test_the_due_time_of_a_held_job_is_held(self, scene: Scene, kind: str) -> None:
        await waiting_job(scene)
        await end_run(scene)
        [wait] = await scene.store.ended_waits(10)
        held = await scene.move(kind, wait.job_id)

        rearmed = await rearm(scene, held)

        assert (rearmed.next_at, rearmed.held_from) == (None, scene.clock.instant + MINUTE)

    async def test_the_end_of_the_run_wakes_the_scheduler(
        self, scene: Scene, published: list[Wakes]
    ) -> None:
        await waiting_job(scene)
        session = await scene.worker()

        await scene.finish(session, await scene.claim(session))

        assert published[-1].times


class TestPausesWithAnEnd:
    async def pause(self, scene: Scene, length: timedelta | None) -> Job:
        job = await scene.show_job(await scene.job(next_at=scene.clock.instant + HOUR))
        until = None if length is None else scene.clock.instant + length
        move = ScheduleMove(
            kind="paused",
            job_id=job.id,
            expected_schedule_version=job.schedule_version,
            expected_next_at=job.next_at,
            enabled=True,
            paused=True,
            next_at=None,
            held_from=job.next_at,
            paused_until=until,
        )
        await scene.store.move_schedules([move], actor="operator")
        return await scene.show_job(job.id)

    async def test_it_is_listed_once_its_time_has_come(self, scene: Scene) -> None:
        job = await self.pause(scene, MINUTE)
        assert await scene.store.ended_pauses(10) == []

        scene.advance(MINUTE)

        assert await scene.store.ended_pauses(10) == [job]

    async def test_a_pause_without_an_end_never_is(self, scene: Scene) -> None:
        await self.pause(scene, None)
        scene.advance(100 * HOUR)

        assert await scene.store.ended_pauses(10) == []
        assert await scene.store.next_pause_end() is None

    async def test_the_next_end_is_known(self, scene: Scene) -> None:
        job = await self.pause(scene, MINUTE)

        assert await scene.store.next_pause_end() == job.paused_until

    async def test_resuming_forgets_it(self, scene: Scene) -> None:
        job = await self.pause(scene, MINUTE)
        await scene.move("resumed", job.id, next_at=job.held_from)
        scene.advance(MINUTE)

        assert await scene.store.ended_pauses(10) == []


class TestMovesOfAScheduleThatFired:
    async def test_a_move_decided_before_it_fired_is_refused(self, scene: Scene) -> None:
        job = await scene.show_job(await scene.job(next_at=scene.clock.instant))
        await scene.fire(job.id)
        move = ScheduleMove(
            "paused",
            job.id,
            job.schedule_version,
            job.next_at,
            enabled=True,
            paused=True,
            next_at=None,
            held_from=job.next_at,
        )

        with pytest.raises(Conflict):
            await scene.store.move_schedules([move], actor="operator")

        assert not (await scene.show_job(job.id)).paused

    async def test_a_save_that_moves_it_on_is_refused(self, scene: Scene) -> None:
        job = await scene.show_job(await scene.job(next_at=scene.clock.instant))
        await scene.fire(job.id)

        with pytest.raises(Conflict) as conflict:
            await scene.store.save_jobs([self.change(scene, job)], removed=(), actor="editor")

        assert conflict.value.code == "schedule_moved"
        assert (await scene.show_job(job.id)).version == job.version

    async def test_a_save_records_what_the_old_schedule_left_open(self, scene: Scene) -> None:
        job = await scene.show_job(await scene.job(next_at=scene.clock.instant))

        await scene.store.save_jobs([self.change(scene, job)], removed=(), actor="editor")

        now = scene.clock.instant
        [entry] = await scene.store.ledger(job.id, now, now, 10)
        assert (entry.first, entry.state, entry.cause) == (now, "MISSED", "schedule changed")
        assert (await scene.show_job(job.id)).next_at == now + HOUR

    async def test_a_save_that_keeps_the_due_times_leaves_the_schedule_where_it_is(
        self, scene: Scene
    ) -> None:
        job = await scene.show_job(await scene.job(next_at=scene.clock.instant))
        await scene.fire(job.id, every=MINUTE)
        same = replace(
            new_job(job.name, scene.clock.instant, job_id=job.id, expected_version=job.version),
            next_at=job.next_at,
            restarts=False,
        )

        await scene.store.save_jobs([same], removed=(), actor="editor")

        assert (await scene.show_job(job.id)).next_at == scene.clock.instant + MINUTE

    def change(self, scene: Scene, job: Job) -> NewJob:
        """A new version with another schedule, made while the job was due."""
        assert job.next_at is not None
        missed = Answered(job.next_at, job.next_at, 1, RunState.MISSED, "schedule changed")
        return replace(
            new_job(job.name, scene.clock.instant, job_id=job.id, expected_version=job.version),
            next_at=scene.clock.instant + HOUR,
            claimed_cursor=job.next_at,
            answered=(missed,),
        )


LONG = timedelta(hours=2)


async def busy_job(scene: Scene, due: int, **rules: Any) -> JobId:
    """A job that was due so often, with the first run still going."""
    job_id = await scene.job(next_at=scene.clock.instant, **rules)
    for _ in range(due):
        await scene.scheduled_run(job_id)
    return job_id


async def events(scene: Scene) -> list[Event]:
    known = await scene.store.events(0, 1_000)
    return [event for event in known if event.kind in ("job.stuck", "job.drained")]


async def test_a_job_with_one_run_is_not_congested(scene: Scene) -> None:
    await busy_job(scene, 1)

    assert await scene.store.congested_jobs() == {}


async def test_waiting_runs_are_counted_from_the_oldest_active_one(scene: Scene) -> None:
    began = scene.clock.instant
    job_id = await busy_job(scene, 4, overlap=Overlap.QUEUE_ALL)

    found = await scene.store.congested_jobs()

    assert found == {job_id: Congestion(3, False, began, None)}


async def test_a_job_that_skips_for_long_is_found(scene: Scene) -> None:
    began = scene.clock.instant
    job_id = await busy_job(scene, 2, overlap=Overlap.SKIP)
    assert await scene.store.congested_jobs() == {}

    scene.advance(LONG)

    assert await scene.store.congested_jobs() == {job_id: Congestion(0, True, began, None)}


async def test_a_long_run_that_holds_nobody_back_is_told_as_such(scene: Scene) -> None:
    job_id = await busy_job(scene, 1)
    scene.advance(LONG)

    found = await scene.store.congested_jobs()

    assert not found[job_id].is_holding_back


async def test_what_a_pause_holds_is_not_congestion(scene: Scene) -> None:
    job_id = await busy_job(scene, 3, overlap=Overlap.QUEUE_ALL)
    await scene.move("paused", job_id)
    scene.advance(LONG)

    assert await scene.store.congested_jobs() == {}


async def test_runs_that_somebody_triggered_are_not_the_schedules(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    await scene.trigger(job_id, 5)
    scene.advance(LONG)

    assert await scene.store.congested_jobs() == {}


async def test_an_episode_is_told_once_and_ends_once(scene: Scene) -> None:
    job_id = await busy_job(scene, 3, overlap=Overlap.QUEUE_ALL)
    stuck = await scene.store.congested_jobs()
    began = scene.advance(MINUTE)

    assert await scene.store.mark_stuck(stuck, stuck) == [job_id]
    assert await scene.store.mark_stuck(stuck, stuck) == []
    assert (await scene.show_job(job_id)).stuck_since == began

    await scene.store.mark_stuck({}, [])
    await scene.store.mark_stuck({}, [])

    assert (await scene.show_job(job_id)).stuck_since is None
    told = await events(scene)
    assert [(event.kind, event.ids) for event in told] == [
        ("job.stuck", (job_id,)),
        ("job.drained", (job_id,)),
    ]
    assert told[0].data["waiting"] == 2


async def test_an_episode_goes_on_while_runs_are_held_back(scene: Scene) -> None:
    job_id = await busy_job(scene, 3, overlap=Overlap.QUEUE_ALL)
    await scene.store.mark_stuck(await scene.store.congested_jobs(), [job_id])

    await scene.store.mark_stuck({}, [job_id])

    assert (await scene.show_job(job_id)).stuck_since is not None
