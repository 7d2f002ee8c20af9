from __future__ import annotations

from dataclasses import replace

import pytest

from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import JobId, RunId, new_run_id
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Idempotency, NewRun, RemovedJob, RunQuery
from testkit.builders import Scene

pytestmark = pytest.mark.anyio


def new_run(scene: Scene, job_id: JobId, version: int = 1) -> NewRun:
    return NewRun(new_run_id(scene.clock.instant), job_id, version, Trigger.MANUAL, "user")


async def test_ten_triggers_are_ten_runs(scene: Scene) -> None:
    job_id = await scene.job()

    for _ in range(10):
        await scene.trigger(job_id)

    runs = await scene.store.runs(RunQuery(job_id=job_id))
    assert [run.state for run in runs] == [RunState.QUEUED] * 10


async def test_many_runs_come_in_one_call_as_they_were_asked_for(scene: Scene) -> None:
    job_id = await scene.job()
    runs = [replace(new_run(scene, job_id), inputs={"n": n}, priority=n % 10) for n in range(700)]

    submitted = await scene.store.submit(runs)

    found = await scene.store.runs(RunQuery(job_id=job_id, limit=1_000))
    assert submitted.runs == tuple(run.id for run in runs)
    assert [(run.id, run.inputs, run.priority) for run in reversed(found)] == [
        (run.id, run.inputs, run.priority) for run in runs
    ]


async def test_an_id_that_is_taken_refuses_all_of_many(scene: Scene) -> None:
    job_id = await scene.job()
    taken = new_run(scene, job_id)
    await scene.store.submit([taken])

    with pytest.raises(Conflict):
        await scene.store.submit([*(new_run(scene, job_id) for _ in range(700)), taken])

    assert len(await scene.store.runs(RunQuery(limit=1_000))) == 1


async def test_a_run_remembers_who_asked_for_what(scene: Scene) -> None:
    job_id = await scene.job(priority=3)

    [run_id] = await scene.trigger(job_id, inputs={"host": "db1"}, priority=8)

    run = await scene.show(run_id)
    assert (run.created_by, run.inputs, run.priority) == ("user", {"host": "db1"}, 8)
    assert (run.attempt, run.job_version, run.trigger) == (0, 1, Trigger.MANUAL)


async def test_a_submission_wakes_the_pool_of_its_job(scene: Scene, published: list[Wakes]) -> None:
    job_id = await scene.job(pool="gpu")

    submitted = await scene.submit(job_id)

    assert published[-1].pools == {"gpu": submitted.runs}


async def test_the_same_key_and_body_give_the_first_answer(scene: Scene) -> None:
    job_id = await scene.job()
    key = Idempotency("key", "digest")

    first = await scene.store.submit([new_run(scene, job_id)], key)
    again = await scene.store.submit([new_run(scene, job_id)], key)

    assert again.runs == first.runs
    assert (first.is_repeat, again.is_repeat) == (False, True)
    assert len(await scene.store.runs(RunQuery())) == 1


async def test_the_same_key_with_another_body_is_refused_and_changes_nothing(scene: Scene) -> None:
    job_id = await scene.job()
    first = await scene.store.submit([new_run(scene, job_id)], Idempotency("key", "digest"))

    with pytest.raises(Conflict) as conflict:
        await scene.store.submit([new_run(scene, job_id)], Idempotency("key", "other"))

    assert conflict.value.code == "idempotency_key_reused"
    assert [run.id for run in await scene.store.runs(RunQuery())] == list(first.runs)


@pytest.mark.parametrize("version", [2, 7])
async def test_a_version_that_does_not_exist_is_not_found(scene: Scene, version: int) -> None:
    job_id = await scene.job()

    with pytest.raises(NotFound):
        await scene.store.submit([new_run(scene, job_id, version)])


async def test_an_unknown_job_fails_the_whole_submission(scene: Scene) -> None:
    job_id = await scene.job()

    with pytest.raises(NotFound):
        await scene.store.submit([new_run(scene, job_id), new_run(scene, JobId("j_nope"))])

    assert await scene.store.runs(RunQuery()) == []


async def test_a_deleted_job_takes_no_more_runs(scene: Scene) -> None:
    job_id = await scene.job()
    run = new_run(scene, job_id)
    await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")

    with pytest.raises(NotFound):
        await scene.store.submit([run])


async def test_an_id_that_is_taken_is_a_conflict(scene: Scene) -> None:
    job_id = await scene.job()
    run = new_run(scene, job_id)
    await scene.store.submit([run])

    with pytest.raises(Conflict):
        await scene.store.submit([run])

    assert len(await scene.store.runs(RunQuery())) == 1


async def test_a_manual_retry_points_to_the_first_run(scene: Scene) -> None:
    job_id = await scene.job()
    [first] = await scene.trigger(job_id)

    [second] = await scene.trigger(job_id, retry_of=first)

    assert (await scene.show(second)).retry_of == RunId(first)
