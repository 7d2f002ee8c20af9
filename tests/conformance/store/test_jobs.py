from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.errors import Conflict
from rota.domain.ids import JobId
from rota.domain.keys import Resource
from rota.domain.run import AttemptResult
from rota.domain.spec import Overlap, Retry
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import JobQuery, RemovedJob, ScheduleMove
from testkit.builders import ALL_SHARDS, MINUTE, Scene, new_job

pytestmark = pytest.mark.anyio


async def test_a_saved_job_is_found_with_its_schedule(scene: Scene) -> None:
    due = scene.clock.instant + MINUTE

    job_id = await scene.job("backup", next_at=due)

    job = await scene.show_job(job_id)
    assert (job.name, job.version, job.next_at, job.created_by) == ("backup", 1, due, "editor")
    assert job.document["name"] == "backup"


async def test_a_change_makes_the_next_version_and_keeps_the_old_document(scene: Scene) -> None:
    job_id = await scene.job()

    changed = await scene.change(job_id, priority=9)

    documents = await scene.store.documents([(job_id, 1), (job_id, 2), (job_id, 3)])
    assert changed.version == 2
    assert set(documents) == {(job_id, 1), (job_id, 2)}


async def test_declarations_are_saved_with_the_jobs_or_not_at_all(
    scene: Scene, published: list[Wakes]
) -> None:
    await scene.job("backup")
    licence, now = Resource("default", "pg-license", 4), scene.clock.instant

    with pytest.raises(Conflict):
        await scene.store.save_jobs(
            [new_job("backup", now)], removed=(), actor="editor", declarations=[licence]
        )
    before = await scene.store.declarations()
    await scene.store.save_jobs(
        [new_job("other", now)], removed=(), actor="editor", declarations=[licence]
    )
    wakes = published[-1]

    assert before == []
    assert [each.declaration for each in await scene.store.declarations()] == [licence]
    assert wakes.keys


async def test_a_name_that_is_taken_is_a_conflict(scene: Scene) -> None:
    await scene.job("backup")

    with pytest.raises(Conflict) as conflict:
        await scene.job("backup")

    assert conflict.value.code == "job_changed"


async def test_a_version_that_was_replaced_meanwhile_is_a_conflict(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.change(job_id)
    stale = new_job("job", scene.clock.instant, job_id=job_id, expected_version=1)

    with pytest.raises(Conflict) as conflict:
        await scene.store.save_jobs([stale], removed=(), actor="editor")

    assert conflict.value.code == "job_changed"
    assert (await scene.show_job(job_id)).version == 2


async def test_one_conflict_undoes_the_whole_save(scene: Scene) -> None:
    doomed = await scene.job("doomed")
    await scene.job("taken")
    now = scene.clock.instant

    with pytest.raises(Conflict):
        await scene.store.save_jobs(
            [new_job("fresh", now), new_job("taken", now)],
            removed=[RemovedJob(doomed)],
            actor="editor",
        )

    names = [job.name for job in await scene.store.jobs(JobQuery())]
    assert names == ["doomed", "taken"]


async def test_a_deleted_job_is_gone_and_its_name_is_free(scene: Scene) -> None:
    job_id = await scene.job("backup", next_at=scene.clock.instant)
    [run] = await scene.trigger(job_id)

    await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")

    assert await scene.store.jobs(JobQuery()) == []
    assert await scene.store.due_schedules(scene.clock.instant + MINUTE, 10, ALL_SHARDS) == []
    assert await scene.state(run) is RunState.QUEUED
    assert await scene.job("backup") != job_id


async def test_what_a_pause_holds_ends_with_the_deleted_job(scene: Scene) -> None:
    job_id = await scene.job()
    [run] = await scene.trigger(job_id)
    await scene.move("paused", job_id)

    await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")

    held = await scene.show(run)
    assert (held.state, held.cause) == (RunState.SKIPPED, "deleted")


async def test_live_runs_of_a_deleted_job_finish_even_if_it_was_paused(scene: Scene) -> None:
    job_id = await scene.job(retry=Retry(attempts=2))
    [run] = await scene.trigger(job_id)
    worker = await scene.worker()
    works = await scene.claim(worker)
    await scene.move("paused", job_id)
    await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")

    await scene.finish(worker, works, AttemptResult.FAILED)
    await scene.release()

    assert await scene.state(run) is RunState.QUEUED


async def test_pause_holds_queued_runs_and_resume_releases_them(scene: Scene) -> None:
    job_id = await scene.job(overlap=Overlap.ALLOW)
    runs = await scene.trigger(job_id, 3)
    worker = await scene.worker()

    paused = await scene.move("paused", job_id)
    claimed_while_paused = await scene.claim(worker)
    held = await scene.show(runs[0])
    resumed = await scene.move("resumed", job_id)

    assert (paused.paused, paused.paused_by) == (True, "operator")
    assert claimed_while_paused == []
    assert (held.state, held.reasons[0].gate) == (RunState.BLOCKED, "pause")
    assert (resumed.paused, resumed.paused_by) == (False, "")
    assert [work.run for work in await scene.claim(worker)] == runs


async def test_a_run_triggered_during_a_pause_waits_for_its_end(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.move("paused", job_id)

    [run] = await scene.trigger(job_id)

    assert await scene.state(run) is RunState.BLOCKED
    await scene.move("resumed", job_id)
    assert await scene.state(run) is RunState.QUEUED


async def test_resume_lets_go_no_more_than_max_concurrency(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=2)
    await scene.move("paused", job_id)
    runs = await scene.trigger(job_id, 300)

    await scene.move("resumed", job_id)

    left_behind = await scene.show(runs[-1])
    queued = [run for run in runs if await scene.state(run) is RunState.QUEUED]
    assert queued == runs[:2]
    assert left_behind.reasons[0].gate == "max_concurrency"


async def test_resume_releases_any_number_of_runs(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.move("paused", job_id)
    await scene.trigger(job_id, 1_000)

    await scene.move("resumed", job_id)

    assert (await scene.store.counts()).runs == {("QUEUED", "default"): 1_000}


async def test_disabling_keeps_who_paused_the_job(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.move("paused", job_id)
    job = await scene.show_job(job_id)
    move = ScheduleMove(
        "disabled",
        job_id,
        job.schedule_version,
        job.next_at,
        enabled=False,
        paused=True,
        next_at=None,
        held_from=None,
    )

    await scene.store.move_schedules([move], actor="someone else")

    assert (await scene.show_job(job_id)).paused_by == "operator"


async def test_a_stale_move_undoes_all_moves(scene: Scene) -> None:
    first, second = await scene.job("first"), await scene.job("second")
    moves = [_pause(first, version=1), _pause(second, version=7)]

    with pytest.raises(Conflict) as conflict:
        await scene.store.move_schedules(moves, actor="operator")

    assert conflict.value.code == "schedule_moved"
    assert not (await scene.show_job(first)).paused


def _pause(job_id: JobId, *, version: int) -> ScheduleMove:
    return ScheduleMove(
        "paused", job_id, version, None, enabled=True, paused=True, next_at=None, held_from=None
    )


async def test_a_save_never_unpauses(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.move("paused", job_id)

    changed = await scene.change(job_id)

    assert changed.paused


async def test_jobs_are_listed_by_name_page_by_page(scene: Scene) -> None:
    for name in ("c", "a", "b"):
        await scene.job(name)

    first = await scene.store.jobs(JobQuery(limit=2))
    rest = await scene.store.jobs(JobQuery(limit=2, after_name=first[-1].name))

    assert [job.name for job in (*first, *rest)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (JobQuery(name_like="back*"), ["backup"]),
        (JobQuery(name_like="*_*"), ["clean_up"]),
        (JobQuery(names=["backup", "clean_up", "nope"]), ["backup", "clean_up"]),
        (JobQuery(set_name="other"), ["clean_up"]),
        (JobQuery(project="another"), []),
    ],
)
async def test_jobs_are_found_by(scene: Scene, query: JobQuery, names: list[str]) -> None:
    await scene.job("backup")
    await scene.job("clean_up", set_name="other")

    found = await scene.store.jobs(query)

    assert [job.name for job in found] == names


async def test_a_job_shows_how_its_newest_run_went(scene: Scene) -> None:
    job_id = await scene.job(overlap=Overlap.ALLOW)
    await scene.trigger(job_id)
    worker = await scene.worker()
    [work] = await scene.claim(worker)
    scene.advance(timedelta(seconds=4))
    await scene.finish(worker, [work])

    job = await scene.show_job(job_id)

    assert (job.last_state, job.last_ended_at) == ("COMPLETED", scene.clock.instant)


async def test_last_run_is_found_past_those_that_wait(scene: Scene) -> None:
    ran, waits = await scene.job("ran", overlap=Overlap.ALLOW), await scene.job("waits")
    await scene.trigger(ran)
    worker = await scene.worker()
    [work] = await scene.claim(worker)
    going = await scene.store.last_runs([ran])
    await scene.finish(worker, [work])
    await scene.trigger(ran, at=scene.clock.instant + MINUTE)
    await scene.trigger(waits)

    found = await scene.store.last_runs([ran, waits])

    assert going == {ran: ("CLAIMED", None)}
    assert found == {ran: ("COMPLETED", scene.clock.instant)}


async def test_a_deleted_job_is_found_by_its_name_and_id(scene: Scene) -> None:
    first = await scene.job("backup")
    await scene.store.save_jobs([], removed=[RemovedJob(first)], actor="editor")
    scene.advance(MINUTE)
    second = await scene.job("backup")
    before = await scene.store.deleted_job("default", "backup")
    await scene.store.save_jobs([], removed=[RemovedJob(second)], actor="editor")

    by_name = await scene.store.deleted_job("default", "backup")
    by_id = await scene.store.deleted_job("default", first)

    assert before is not None
    assert by_name is not None
    assert by_id is not None
    assert (before.id, by_name.id, by_id.id) == (first, second, first)
    assert by_name.deleted_at == scene.clock.instant
    assert await scene.store.deleted_job("other", "backup") is None
    assert await scene.store.deleted_job("default", "restore") is None


async def test_names_of_jobs_begin_with_those_of_the_same_letter(scene: Scene) -> None:
    for name in ("alpha", "Beta", "backup", "gamma"):
        await scene.job(name)
    gone = await scene.job("bygone")
    await scene.store.save_jobs([], removed=[RemovedJob(gone)], actor="editor")

    names = await scene.store.names_of_jobs("default", "bckup", 3)

    assert set(names[:2]) == {"Beta", "backup"}
    assert names[2] == "alpha"
    assert await scene.store.names_of_jobs("other", "bckup", 3) == []
