"""Runs of due times: one each, and begun at once where a worker of the firing server has room."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rota.domain.ids import JobId, SessionId, scheduled_run_id
from rota.domain.job import Job
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Answered, Fired, PlannedRun, RemovedJob, Room, RunQuery
from rota.ports.work import WorkBatch
from rota.store.sqlite.opening import open_sqlite
from rota.store.store import SqlStore
from testkit.builders import ALL_SHARDS, MINUTE, Scene, firing_of
from testkit.clock import FakeTicker
from tests.conformance.store.rivals import Rival

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


async def due_jobs(scene: Scene, count: int = 1, **fields: Any) -> list[JobId]:
    now = scene.clock.instant
    return [await scene.job(f"job-{n}", next_at=now, **fields) for n in range(count)]


async def fire(scene: Scene, jobs: Sequence[JobId], room: Room | None) -> Fired:
    found = [await scene.show_job(job) for job in jobs]
    firings = [firing_of(job, next_at=scene.clock.instant + MINUTE) for job in found]
    return await scene.store.fire(firings, await scene.ownership(), room)


async def fire_for(scene: Scene, session: SessionId, **fields: Any) -> Fired:
    """Fire a job that is due, for a worker that is said to have ten free slots."""
    return await fire(scene, await due_jobs(scene, **fields), Room(session, 10))


def is_left_waiting(fired: Fired, wakes: Wakes) -> bool:
    return not fired.claimed and fired.run_count == 1 and list(wakes.pools) == ["default"]


async def test_what_is_due_is_claimed_by_the_firing_and_nobody_else_is_woken(
    scene: Scene, published: list[Wakes]
) -> None:
    worker = await scene.worker()

    fired = await fire_for(scene, worker)

    [work] = fired.claimed.works()
    run = await scene.show(work.run)
    assert (run.state, run.session, work.attempt) == (RunState.CLAIMED, worker, 1)
    assert published[-1].pools == {}
    assert await scene.claim(worker) == []


async def test_what_the_firing_claimed_is_finished_like_any_other(scene: Scene) -> None:
    worker = await scene.worker()
    fired = await fire_for(scene, worker)

    finished = await scene.finish(worker, fired.claimed.works())

    assert finished.refused == ()
    assert await scene.states(fired.claimed.runs) == [RunState.COMPLETED]


async def test_what_finds_no_room_waits_for_others(scene: Scene, published: list[Wakes]) -> None:
    worker, other = await scene.worker(), await scene.worker("other")

    fired = await fire(scene, await due_jobs(scene, 3), Room(worker, 2))

    [waiting] = published[-1].pools["default"]
    assert len(fired.claimed) == 2
    assert [work.run for work in await scene.claim(other)] == [waiting]


async def test_room_that_the_worker_has_not_is_not_filled(scene: Scene) -> None:
    worker = await scene.worker(slots=2)

    fired = await fire(scene, await due_jobs(scene, 3), Room(worker, 10))

    assert len(fired.claimed) == 2


async def test_who_waited_before_goes_first(scene: Scene, published: list[Wakes]) -> None:
    [earlier] = await scene.trigger(await scene.job("earlier", share="team"))
    worker = await scene.worker()

    fired = await fire(scene, await due_jobs(scene, share="team"), Room(worker, 1))

    assert [work.run for work in fired.claimed.works()] == [earlier]
    assert len(published[-1].pools["default"]) == 1


async def test_a_worker_that_connected_anew_gets_nothing_from_its_former_server(
    scene: Scene,
    published: list[Wakes],
) -> None:
    worker = await scene.worker()

    fired = await fire(scene, await due_jobs(scene), Room(worker, 10, stream=2))

    assert is_left_waiting(fired, published[-1])


async def test_a_worker_that_is_gone_does_not_keep_a_job_from_firing(
    scene: Scene, published: list[Wakes]
) -> None:
    worker = await scene.worker()
    await scene.store.end_session(worker)

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_worker_that_stops_gets_nothing(scene: Scene, published: list[Wakes]) -> None:
    worker = await scene.worker()
    await scene.store.renew(worker, stopping=True)

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_drained_worker_gets_nothing(scene: Scene, published: list[Wakes]) -> None:
    worker = await scene.worker()
    await scene.store.drain_worker("worker", actor="operator")

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_worker_of_another_pool_gets_nothing(scene: Scene, published: list[Wakes]) -> None:
    worker = await scene.worker(pool="gpu")

    assert is_left_waiting(await fire_for(scene, worker), published[-1])


async def test_a_run_that_may_not_go_yet_is_not_claimed(
    scene: Scene, published: list[Wakes]
) -> None:
    worker = await scene.worker()
    [job] = await due_jobs(scene, max_concurrency=1)
    await scene.trigger(job)

    fired = await fire(scene, [job], Room(worker, 10))

    assert (fired.claimed, fired.run_count, published[-1].pools) == (WorkBatch(), 1, {})


class TestOnPostgres:
    @pytest.fixture
    def store(self, postgres_store: SqlStore) -> SqlStore:
        return postgres_store

    async def test_firing_waits_for_nobody_who_is_busy_with_the_worker(
        self, scene: Scene, rival: Rival, published: list[Wakes]
    ) -> None:
        worker = await scene.worker()
        await rival.execute("BEGIN; SELECT FROM session FOR UPDATE")

        fired = await fire_for(scene, worker)

        await rival.execute("ROLLBACK")
        assert is_left_waiting(fired, published[-1])


COLUMNS = """id, project, job_id, job, job_version, trigger, state, due_at, release_at, priority,
    pool, chain, shape, delivery, max_attempts, expected, created_by, created_at"""
AGAIN = f"INSERT INTO run ({COLUMNS}) SELECT {COLUMNS} FROM run"


async def fire_once(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant)
    await scene.fire(job_id)


async def test_sqlite_refuses_the_id_of_a_run_twice(tmp_path: Path, clock: FakeTicker) -> None:
    path = tmp_path / "rota.db"
    store = await open_sqlite(path, clock=clock)
    await fire_once(Scene(store, clock))
    await store.close()

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM run").fetchone() == (1,)
        with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE.*run\.id"):
            database.execute(AGAIN)


async def test_postgres_refuses_the_id_of_a_run_twice(
    postgres_store: SqlStore, clock: FakeTicker, rival: Rival
) -> None:
    await fire_once(Scene(postgres_store, clock))

    with pytest.raises(asyncpg.UniqueViolationError, match="run_id"):
        await rival.execute(AGAIN)
