from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import JobId, scheduled_run_id
from rota.domain.job import Job
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Answered, PlannedRun, RemovedJob, RunQuery
from testkit.builders import ALL_SHARDS, MINUTE, Scene, firing_of

pytestmark = pytest.mark.anyio


async def due_job(scene: Scene, name: str = "job", **fields: Any) -> Job:
    """A job that is due now."""
    return await scene.show_job(await scene.job(name, next_at=scene.clock.instant, **fields))


async def run_count(scene: Scene, job_id: JobId) -> int:
    return len(await scene.store.runs(RunQuery(job_id=job_id)))


async def test_schedules_due_soon_come_by_due_time(scene: Scene) -> None:
    now = scene.clock.instant
    late = await scene.job("late", next_at=now + 2 * MINUTE)
    soon = await scene.job("soon", next_at=now + MINUTE)
    await scene.job("far", next_at=now + 5 * MINUTE)
    await scene.job("on demand")

    due = await scene.store.due_schedules(now + 3 * MINUTE, 10, ALL_SHARDS)

    assert [schedule.job_id for schedule in due] == [soon, late]


async def test_firing_inserts_the_run_and_moves_the_schedule_on(
    scene: Scene, published: list[Wakes]
) -> None:
    job = await due_job(scene)
    assert job.next_at is not None

    fired = await scene.fire(job.id)

    run = await scene.show(scheduled_run_id(job.id, job.next_at))
    assert (fired.accepted, fired.run_count) == (frozenset({job.id}), 1)
    assert set(published[-1].pools) == {"default"}
    assert (run.state, run.due_at) == (RunState.QUEUED, job.next_at)
    assert (await scene.show_job(job.id)).next_at == job.next_at + MINUTE


async def test_nothing_fires_before_it_is_due(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant + timedelta(microseconds=1))

    fired = await scene.fire(job_id)

    assert fired.accepted == frozenset()
    assert await run_count(scene, job_id) == 0


async def test_two_schedulers_that_fire_the_same_due_time_make_one_run(scene: Scene) -> None:
    job = await due_job(scene)
    assert job.next_at is not None
    firing = firing_of(job, next_at=job.next_at + MINUTE)

    first = await scene.fire_all([firing])
    second = await scene.fire_all([firing])

    assert (len(first.accepted), len(second.accepted)) == (1, 0)
    assert await run_count(scene, job.id) == 1


async def test_a_firing_twice_in_one_batch_counts_once(scene: Scene) -> None:
    job = await due_job(scene)
    firing = firing_of(job)

    fired = await scene.fire_all([firing, firing])

    assert (fired.accepted, fired.run_count) == (frozenset({job.id}), 1)


async def test_a_stale_firing_leaves_its_neighbours_unharmed(scene: Scene) -> None:
    moved, fresh = await due_job(scene, "moved"), await due_job(scene, "fresh")
    await scene.change(moved.id, next_at=scene.clock.instant)

    fired = await scene.fire_all([firing_of(moved), firing_of(fresh)])

    assert fired.accepted == {fresh.id}
    assert await run_count(scene, moved.id) == 0


async def test_a_schedule_that_came_back_to_the_same_time_is_not_fired_by_an_old_reader(
    scene: Scene,
) -> None:
    read_before = await due_job(scene)
    await scene.move("paused", read_before.id)
    await scene.move("resumed", read_before.id, next_at=read_before.next_at)

    fired = await scene.fire_all([firing_of(read_before)])

    assert fired.accepted == frozenset()


async def test_a_due_time_that_has_a_run_gets_no_second_one(scene: Scene) -> None:
    job = await due_job(scene)
    await scene.fire(job.id)
    again = await scene.change(job.id, next_at=job.next_at)

    fired = await scene.fire_all([firing_of(again)])

    assert (fired.accepted, fired.run_count) == (frozenset({job.id}), 0)
    assert await run_count(scene, job.id) == 1


async def test_a_deleted_job_does_not_fire(scene: Scene) -> None:
    job = await due_job(scene)
    await scene.store.save_jobs([], removed=[RemovedJob(job.id)], actor="editor")

    fired = await scene.fire_all([firing_of(job)])

    assert fired.accepted == frozenset()


async def test_run_once_finishes_the_job(scene: Scene) -> None:
    job = await due_job(scene)

    await scene.fire_all([firing_of(job, finishes_job=True)])

    finished = await scene.show_job(job.id)
    assert (finished.finished_at, finished.next_at) == (scene.clock.instant, None)


async def test_a_new_schedule_lets_a_finished_job_fire_again(scene: Scene) -> None:
    job = await due_job(scene)
    await scene.fire_all([firing_of(job, finishes_job=True)])

    changed = await scene.change(job.id, next_at=scene.clock.instant + MINUTE)

    assert changed.finished_at is None


async def test_due_times_without_a_run_are_kept_as_a_stretch(scene: Scene) -> None:
    job = await due_job(scene)
    now = scene.clock.instant
    missed = Answered(now, now + 9 * MINUTE, 10, RunState.MISSED, "downtime")
    scene.advance(10 * MINUTE)
    ran = PlannedRun(now + 10 * MINUTE, now + 10 * MINUTE)

    await scene.fire_all([firing_of(job, runs=[ran], answered=[missed])])

    ledger = await scene.store.ledger(job.id, now, now + 20 * MINUTE, 10)
    assert [(entry.state, entry.cause, entry.count) for entry in ledger] == [
        ("MISSED", "downtime", 10),
        ("BLOCKED", "", 1),  # there is no worker
    ]
    assert (ledger[0].first, ledger[0].last, ledger[0].run) == (missed.first, missed.last, None)
    await scene.worker()
    assert (await scene.store.ledger(job.id, now, now + 20 * MINUTE, 10))[1].state == "QUEUED"


async def test_jitter_keeps_a_due_run_scheduled_until_its_release(
    scene: Scene, published: list[Wakes]
) -> None:
    job = await due_job(scene)
    assert job.next_at is not None
    release_at = job.next_at + timedelta(seconds=7)

    await scene.fire_all([firing_of(job, runs=[PlannedRun(job.next_at, release_at)])])

    run = scheduled_run_id(job.id, job.next_at)
    assert (published[-1].times, await scene.state(run)) == (True, RunState.SCHEDULED)
    assert await scene.store.next_eligible_at() == release_at
    assert await scene.release() == 0
    scene.advance(timedelta(seconds=7))
    assert await scene.release() == 1
    assert await scene.state(run) is RunState.QUEUED
    assert await scene.store.next_eligible_at() is None


async def test_jitter_never_lets_two_runs_of_a_job_overlap(scene: Scene) -> None:
    job = await due_job(scene)
    now = scene.clock.instant
    delayed = PlannedRun(now, now + timedelta(seconds=90))
    prompt = PlannedRun(now + MINUTE, now + MINUTE)
    scene.advance(MINUTE)

    await scene.fire_all([firing_of(job, runs=[delayed, prompt])])
    scene.advance(MINUTE)
    await scene.release()

    first, second = (scheduled_run_id(job.id, planned.due_at) for planned in (delayed, prompt))
    assert await scene.states([first, second]) == [RunState.QUEUED, RunState.BLOCKED]


async def test_of_two_runs_released_together_the_older_goes_first(scene: Scene) -> None:
    job = await due_job(scene)
    now = scene.clock.instant
    older = PlannedRun(now, now + 3 * MINUTE)
    younger = PlannedRun(now + MINUTE, now + 2 * MINUTE)
    scene.advance(MINUTE)
    await scene.fire_all([firing_of(job, runs=[older, younger])])
    scene.advance(5 * MINUTE)

    await scene.release()

    runs = [scheduled_run_id(job.id, planned.due_at) for planned in (older, younger)]
    assert await scene.states(runs) == [RunState.QUEUED, RunState.BLOCKED]


async def test_lateness_counts_from_the_release(scene: Scene) -> None:
    job = await due_job(scene, overlap=Overlap.ALLOW)
    assert job.next_at is not None
    release_at = job.next_at + timedelta(seconds=7)
    await scene.fire_all([firing_of(job, runs=[PlannedRun(job.next_at, release_at)])])
    scene.advance(timedelta(seconds=9))
    await scene.release()
    worker = await scene.worker()

    await scene.finish(worker, await scene.claim(worker))

    run = await scene.show(scheduled_run_id(job.id, job.next_at))
    assert run.lateness_seconds == pytest.approx(2.0)


async def test_a_run_for_later_waits_for_its_time(scene: Scene) -> None:
    job_id = await scene.job()
    at = scene.clock.instant + MINUTE

    [run] = await scene.trigger(job_id, at=at)

    assert await scene.state(run) is RunState.SCHEDULED
    scene.advance(MINUTE)
    await scene.release()
    assert (await scene.show(run)).due_at == at
    assert await scene.state(run) is RunState.QUEUED
