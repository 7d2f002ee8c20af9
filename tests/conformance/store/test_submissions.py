"""Runs that people and programs ask for: one by one, many in a call, and many calls at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rota.domain.errors import Conflict, NotFound, RotaError, Unavailable
from rota.domain.ids import JobId, RunId, new_run_id
from rota.domain.keys import Quota
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Idempotency, JobQuery, NewRun, RemovedJob, RunQuery, SubmittedRun
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


KEY = Idempotency("key", "digest")


def new_run_of(scene: Scene, job: JobId, user: str = "user", version: int = 1) -> NewRun:
    return NewRun(new_run_id(scene.clock.instant), job, version, Trigger.MANUAL, user, {"by": user})


async def submit(
    scene: Scene, *requests: tuple[NewRun, Idempotency | None]
) -> tuple[list[SubmittedRun], list[RotaError]]:
    """All at the same time: what was accepted, and what was refused."""
    calls = [scene.store.submit_one(run, key) for run, key in requests]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    accepted = [each for each in answers if isinstance(each, SubmittedRun)]
    return accepted, [each for each in answers if isinstance(each, RotaError)]


async def stored(scene: Scene) -> set[str]:
    return {run.id for run in await scene.store.runs(RunQuery(limit=1_000))}


async def test_each_caller_gets_its_own_run_and_their_pool_is_woken(
    scene: Scene, job: JobId, published: list[Wakes]
) -> None:
    runs = [new_run_of(scene, job, user) for user in ("ann", "bob", "ann")]

    accepted, _ = await submit(scene, *((run, None) for run in runs))

    shown = [each.run for each in accepted if each.run is not None]
    assert [(run.id, run.created_by, run.inputs) for run in shown] == [
        (run.id, run.created_by, run.inputs) for run in runs
    ]
    offered = [run for wakes in published for run in wakes.pools.get("default", ())]
    assert offered == [run.id for run in runs]


async def test_they_are_recorded_together_each_in_the_name_of_who_asked(
    scene: Scene, job: JobId
) -> None:
    anns, bobs, more = (new_run_of(scene, job, user) for user in ("ann", "bob", "ann"))

    await submit(scene, (anns, None), (bobs, None), (more, None))

    events = await scene.store.events(0, 100)
    queued = {event.actor: event.ids for event in events if event.kind == "run.queued"}
    assert queued == {"ann": (anns.id, more.id), "bob": (bobs.id,)}


async def test_a_job_that_is_limited_lets_only_so_many_of_them_go(scene: Scene) -> None:
    job = await scene.job(max_concurrency=2)

    accepted, _ = await submit(scene, *((new_run_of(scene, job), None) for _ in range(5)))

    states = [each.run.state for each in accepted if each.run is not None]
    assert states == [RunState.QUEUED] * 2 + [RunState.BLOCKED] * 3


async def test_a_key_that_two_of_them_have_makes_one_run(scene: Scene, job: JobId) -> None:
    first, again, other = (new_run_of(scene, job) for _ in range(3))

    accepted, _ = await submit(scene, (first, KEY), (again, KEY), (other, None))

    assert [each.run and each.run.id for each in accepted] == [first.id, first.id, other.id]
    assert [each.is_repeat for each in accepted] == [False, True, False]
    assert await stored(scene) == {first.id, other.id}


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_key_that_is_used_for_something_else_refuses_nobody_else(
    scene: Scene, job: JobId, is_known: bool
) -> None:
    first, reused, other = (new_run_of(scene, job) for _ in range(3))
    if is_known:
        await scene.store.submit_one(first, KEY)

    accepted, [refusal] = await submit(
        scene, (first, KEY), (reused, Idempotency("key", "other")), (other, None)
    )

    assert refusal.code == "idempotency_key_reused"
    assert [each.is_repeat for each in accepted] == [is_known, False]
    assert await stored(scene) == {first.id, other.id}


async def test_a_version_that_does_not_exist_refuses_nobody_else(scene: Scene, job: JobId) -> None:
    first, wrong, other = (new_run_of(scene, job, version=version) for version in (1, 7, 1))

    accepted, [refusal] = await submit(scene, (first, None), (wrong, None), (other, KEY))

    assert isinstance(refusal, NotFound)
    assert [each.run and each.run.id for each in accepted] == [first.id, other.id]
    assert await stored(scene) == {first.id, other.id}


async def test_as_many_of_them_are_accepted_as_the_quota_has_room_for(
    scene: Scene, job: JobId
) -> None:
    await scene.store.save_declarations([Quota("default", queued=2)], actor="admin")

    accepted, refused = await submit(scene, *((new_run_of(scene, job), None) for _ in range(4)))

    assert len(await stored(scene)) == len(accepted) == 2
    assert [each.code for each in refused] == ["quota_exceeded"] * 2


async def test_a_key_of_a_refused_call_is_free_again(scene: Scene, job: JobId) -> None:
    await submit(scene, (new_run_of(scene, job, version=7), KEY), (new_run_of(scene, job), None))

    answer = await scene.store.submit_one(new_run_of(scene, job), KEY)

    assert not answer.is_repeat


async def test_a_taken_id_is_a_conflict_for_its_own_caller_only(scene: Scene, job: JobId) -> None:
    taken, other = new_run_of(scene, job), new_run_of(scene, job)
    await scene.store.submit_one(taken)

    accepted, [refusal] = await submit(scene, (taken, None), (other, None))

    assert isinstance(refusal, Conflict)
    assert [each.run and each.run.id for each in accepted] == [other.id]


async def test_a_store_that_is_closed_leaves_nobody_waiting(scene: Scene, job: JobId) -> None:
    calls = [asyncio.create_task(scene.store.submit_one(new_run_of(scene, job))) for _ in range(3)]

    await scene.store.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(each, SubmittedRun | Unavailable) for each in answers)
    with pytest.raises(Unavailable):
        await scene.store.submit_one(new_run_of(scene, job))


async def test_looks_at_the_same_time_each_find_what_they_look_for(scene: Scene) -> None:
    one, other = await scene.job("one"), await scene.job("other")
    [run], [second] = await scene.trigger(one), await scene.trigger(other)
    names = [["one"], ["other"], ["none"], ["other", "one"], []]
    ids: list[list[str]] = [[run], [second], ["r_none"], [run, second], []]

    jobs = await asyncio.gather(*(scene.store.jobs(JobQuery(names=each)) for each in names))
    same = await asyncio.gather(
        *(scene.store.jobs(JobQuery(ids=each)) for each in ([one], [other]))
    )
    runs = await asyncio.gather(*(scene.store.runs(RunQuery(ids=each)) for each in ids))

    assert [[job.id for job in found] for found in jobs] == [[one], [other], [], [one, other], []]
    assert [[job.id for job in found] for found in same] == [[one], [other]]
    assert [[each.id for each in found] for found in runs] == [
        [run],
        [second],
        [],
        [second, run],
        [],
    ]


@pytest.mark.parametrize("strange", ["\0", "\ud800"])
async def test_a_name_that_no_store_can_hold_fails_no_other_look(
    scene: Scene, job: JobId, strange: str
) -> None:
    [run] = await scene.trigger(job)

    runs = [scene.store.runs(RunQuery(ids=[each])) for each in (strange, run)]
    jobs = [scene.store.jobs(JobQuery(names=[each])) for each in (strange, "job")]
    found = await asyncio.gather(*runs, *jobs, return_exceptions=True)

    assert found[1] == [await scene.show(run)]
    assert found[3] == [await scene.show_job(job)]


async def test_inputs_that_no_store_can_hold_refuse_nobody_else(scene: Scene, job: JobId) -> None:
    strange, other = (
        replace(new_run_of(scene, job), inputs={"by": "\ud800"}),
        new_run_of(scene, job),
    )

    accepted, _ = await submit(scene, (strange, None), (other, None))

    assert [each.run and each.run.id for each in accepted] == [other.id]
