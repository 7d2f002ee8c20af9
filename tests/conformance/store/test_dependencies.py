"""Jobs that come after others."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Conflict
from rota.domain.ids import JobId, RunId, following_run_id
from rota.domain.run import AttemptResult, Run, Trigger
from rota.domain.spec import Follow, Input, InputType, Late, Overlap, Retry, When
from rota.domain.states import RunState
from rota.ports.files import KeptFile, NewArtifact
from rota.ports.records import RemovedJob, RunQuery
from rota.store.dependencies import follow as follow_ends
from rota.store.gates import lock_gates
from rota.store.script import Script, Urgency
from rota.store.store import SqlStore
from rota.store.tx import Tx
from rota.store.waits import leave_ends
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio
HOUR = timedelta(hours=1)


async def complete(
    scene: Scene, job_id: JobId, result: AttemptResult = AttemptResult.COMPLETED
) -> RunId:
    """A run of a job by hand, brought to its end a minute later."""
    [run] = await scene.trigger(job_id, priority=9)
    worker = await scene.worker("hand", slots=1)
    works = await scene.claim(worker, 1, runs=[run])
    scene.advance(MINUTE)
    await scene.finish(worker, works, result)
    await scene.store.end_session(worker)
    return run


async def follow(scene: Scene) -> int:
    """What the scheduler does about it, until nothing is left to do."""
    followed = await scene.store.follow_ends(100)
    await scene.release()
    return followed


async def runs_of(scene: Scene, job_id: JobId) -> list[Run]:
    return await scene.store.runs(RunQuery(job_id=job_id))


async def due_after(scene: Scene, *upstreams: str, **fields: object) -> JobId:
    """A job that is due every hour from the next one on, and waits for others."""
    return await scene.job("report", next_at=scene.clock.instant + HOUR, after=upstreams, **fields)


async def test_each_completed_run_is_followed_by_one_run(scene: Scene) -> None:
    first, second = await scene.job("first"), await scene.job("second")
    follower = await scene.job("follower", after=("first", "second"))
    upstreams = [await complete(scene, job) for job in (first, second, first)]

    assert await follow(scene) == 3

    runs = await runs_of(scene, follower)
    assert {run.id for run in runs} == {following_run_id(follower, up) for up in upstreams}
    assert {run.follows for run in runs} == set(upstreams)
    assert {(run.trigger, run.state) for run in runs} == {(Trigger.AFTER, RunState.QUEUED)}


async def test_a_run_that_ends_badly_is_not_followed(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",))
    await complete(scene, upstream, AttemptResult.FAILED)

    assert await follow(scene) == 0
    assert await runs_of(scene, follower) == []


async def test_a_completion_that_a_person_states_counts_too(scene: Scene) -> None:
    upstream = await scene.job("extract", delivery="at_most_once")
    follower = await scene.job("load", after=("extract",))
    await scene.trigger(upstream)
    worker = await scene.worker()
    [work] = await scene.claim(worker)
    await scene.start(worker, [work])
    await scene.store.end_session(worker)

    await scene.store.resolve(RunId(work.run), RunState.COMPLETED, actor="person")
    await follow(scene)

    assert [run.follows for run in await runs_of(scene, follower)] == [work.run]


async def test_what_is_reported_or_followed_twice_is_followed_once(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",))
    await scene.trigger(upstream)
    worker = await scene.worker()
    works = await scene.claim(worker)

    for _ in range(2):
        await scene.finish(worker, works)
        await follow(scene)

    assert len(await runs_of(scene, follower)) == 1


async def test_followers_follow_in_turn(scene: Scene) -> None:
    first = await scene.job("a")
    await scene.job("b", after=("a",))
    last = await scene.job("c", after=("b",))
    await complete(scene, first)
    await follow(scene)
    worker = await scene.worker()

    await scene.finish(worker, await scene.claim(worker))
    await follow(scene)

    assert len(await runs_of(scene, last)) == 1


async def test_the_run_of_a_paused_follower_waits_for_the_end_of_the_pause(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",))
    await scene.move("paused", follower)
    await complete(scene, upstream)

    await follow(scene)
    [held] = await runs_of(scene, follower)
    await scene.move("resumed", follower)
    await scene.release()

    assert [reason.gate for reason in held.reasons] == ["pause"]
    assert await scene.state(held.id) is RunState.QUEUED


async def test_a_disabled_follower_lets_completions_pass(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",))
    await scene.move("disabled", follower)
    await complete(scene, upstream)
    await follow(scene)

    await scene.move("enabled", follower)
    await follow(scene)

    assert await runs_of(scene, follower) == []


async def test_what_is_no_follower_any_more_follows_no_more(scene: Scene) -> None:
    upstream = await scene.job("extract")
    changed = await scene.job("changed", after=("extract",))
    deleted = await scene.job("deleted", after=("extract",))
    await scene.change(changed)
    await scene.store.save_jobs([], removed=[RemovedJob(deleted)], actor="editor")

    await complete(scene, upstream)

    assert await follow(scene) == 0
    assert await runs_of(scene, changed) == []


async def test_a_follower_with_no_free_slot_waits_for_one(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",), max_concurrency=1)
    for _ in range(2):
        await complete(scene, upstream)

    await follow(scene)

    states = sorted(run.state for run in await runs_of(scene, follower))
    assert states == [RunState.BLOCKED, RunState.QUEUED]


async def test_a_due_run_waits_until_every_upstream_has_completed(scene: Scene) -> None:
    first, second = await scene.job("first"), await scene.job("second")
    job_id = await due_after(scene, "first", "second")
    due = await scene.scheduled_run(job_id, every=HOUR)

    await complete(scene, second)
    await follow(scene)
    between = await scene.show(due.id)
    await complete(scene, first)
    await follow(scene)

    assert due.state is RunState.BLOCKED
    assert [(r.gate, r.key, r.action) for r in due.reasons] == [
        ("after", f"after:default/{name}", f"rota job show {name}") for name in ("first", "second")
    ]
    assert [reason.key for reason in between.reasons] == ["after:default/first"]
    assert await scene.state(due.id) is RunState.QUEUED


async def test_a_completion_counts_for_the_due_time_after_it_only(scene: Scene) -> None:
    upstream = await scene.job("extract")
    job_id = await due_after(scene, "extract", overlap=Overlap.ALLOW)
    await complete(scene, upstream)
    await follow(scene)

    first = await scene.scheduled_run(job_id, every=HOUR)
    second = await scene.scheduled_run(job_id, every=HOUR)

    assert (first.state, second.state) == (RunState.QUEUED, RunState.BLOCKED)


async def test_what_completed_before_it_was_followed_counts_if_it_is_recent(scene: Scene) -> None:
    upstream = await scene.job("extract")
    job_id = await scene.job("report", next_at=scene.clock.instant + HOUR)
    await complete(scene, upstream)

    await scene.change(job_id, next_at=scene.clock.instant + HOUR, after=("extract",))

    assert (await scene.scheduled_run(job_id)).state is RunState.QUEUED


async def test_triggers_do_not_wait_for_other_jobs(scene: Scene) -> None:
    await scene.job("extract")
    job_id = await due_after(scene, "extract")

    [run] = await scene.trigger(job_id)

    assert await scene.state(run) is RunState.QUEUED


async def test_a_due_run_is_missed_when_its_wait_is_over(scene: Scene) -> None:
    await scene.job("extract")
    job_id = await due_after(scene, "extract", after_within=10 * MINUTE)
    due = await scene.scheduled_run(job_id, every=HOUR)

    scene.advance(9 * MINUTE)
    await scene.store.release_forgotten(100)
    before = await scene.state(due.id)
    scene.advance(MINUTE)
    await scene.store.release_forgotten(100)

    missed = await scene.show(due.id)
    assert before is RunState.BLOCKED
    assert (missed.state, missed.cause) == (RunState.MISSED, "dependency")


@pytest.mark.parametrize(
    ("late", "end"), [(Late.RUN, RunState.QUEUED), (Late.DROP, RunState.MISSED)]
)
async def test_the_bound_of_the_wait_is_gone_once_it_is_over(
    scene: Scene, late: Late, end: RunState
) -> None:
    upstream = await scene.job("extract")
    job_id = await due_after(
        scene, "extract", after_within=10 * MINUTE, start_within=20 * MINUTE, late=late
    )
    due = await scene.scheduled_run(job_id, every=HOUR)
    await complete(scene, upstream)
    await follow(scene)

    scene.advance(15 * MINUTE)
    await scene.store.release_forgotten(100)
    between = await scene.state(due.id)
    scene.advance(15 * MINUTE)
    await scene.store.release_forgotten(100)

    ended = await scene.show(due.id)
    assert between is RunState.QUEUED
    assert ended.state is end
    assert ended.cause == ("too late" if late is Late.DROP else "")


async def test_a_younger_due_run_takes_the_place_of_one_that_waits(scene: Scene) -> None:
    upstream = await scene.job("extract")
    job_id = await due_after(scene, "extract", overlap=Overlap.QUEUE_ONE)

    first = await scene.scheduled_run(job_id, every=HOUR)
    second = await scene.scheduled_run(job_id, every=HOUR)
    superseded = await scene.show(first.id)
    await complete(scene, upstream)
    await follow(scene)

    assert (superseded.state, superseded.cause) == (RunState.SKIPPED, "superseded")
    assert await scene.state(second.id) is RunState.QUEUED


async def test_a_due_run_says_that_what_it_waits_for_is_gone(scene: Scene) -> None:
    upstream = await scene.job("extract")
    job_id = await due_after(scene, "extract")
    due = await scene.scheduled_run(job_id, every=HOUR)

    await scene.store.save_jobs([], removed=[RemovedJob(upstream)], actor="editor")
    await scene.release()
    told = await scene.show(due.id)
    again = await scene.job("extract")
    await scene.release()
    await complete(scene, again)
    await follow(scene)

    assert "there is no job extract" in told.reasons[0].message
    assert await scene.state(due.id) is RunState.QUEUED


async def test_a_due_run_waits_no_more_for_what_its_job_does_not_follow(scene: Scene) -> None:
    await scene.job("extract")
    job_id = await due_after(scene, "extract")
    due = await scene.scheduled_run(job_id, every=HOUR)

    await scene.change(job_id, next_at=scene.clock.instant + HOUR)
    await scene.release()

    assert await scene.state(due.id) is RunState.QUEUED


async def test_what_waits_for_other_jobs_ends_with_its_own(scene: Scene) -> None:
    await scene.job("extract")
    job_id = await due_after(scene, "extract")
    due = await scene.scheduled_run(job_id, every=HOUR)

    await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")

    ended = await scene.show(due.id)
    assert (ended.state, ended.cause) == (RunState.SKIPPED, "deleted")


async def test_many_ends_and_waiters_are_answered_in_steps(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",))
    job_id = await due_after(scene, "extract", overlap=Overlap.ALLOW)
    due = [await scene.scheduled_run(job_id, every=HOUR) for _ in range(5)]
    for _ in range(3):
        await complete(scene, upstream)

    steps = 0
    while await scene.store.follow_ends(2):
        steps += 1
    await scene.release()

    assert steps > 1
    assert len(await runs_of(scene, follower)) == 3
    assert await scene.states([run.id for run in due]) == [RunState.QUEUED] * 5


async def test_followers_at_work_at_the_same_time_answer_each_end_once(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",))
    runs = await scene.trigger(upstream, 30)
    worker = await scene.worker(slots=30)
    await scene.finish(worker, await scene.claim(worker))

    followed = await asyncio.gather(*(scene.store.follow_ends(7) for _ in range(6)))
    while await scene.store.follow_ends(7):
        pass

    assert sum(followed) <= 30
    answers = Counter(run.follows for run in await runs_of(scene, follower))
    assert answers == Counter(runs)


async def test_what_was_undone_by_a_crash_is_followed_again(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", after=("extract",))
    await complete(scene, upstream)
    assert isinstance(scene.store, SqlStore)

    def crash(tx: Tx) -> Script[None]:
        yield from follow_ends(tx, 10, lock_gates)
        raise KeyError("crash")

    with pytest.raises(KeyError):
        await scene.store.write(crash, Urgency.CLAIM)
    before = await runs_of(scene, follower)
    await follow(scene)

    assert (len(before), len(await runs_of(scene, follower))) == (0, 1)


async def test_rivals_who_let_jobs_follow_each_other_make_no_ring(scene: Scene) -> None:
    first, second = await scene.job("first"), await scene.job("second")

    saved = await asyncio.gather(
        scene.change(first, after=("second",)),
        scene.change(second, after=("first",)),
        return_exceptions=True,
    )

    [refusal] = [each for each in saved if isinstance(each, Conflict)]
    assert refusal.code == "dependency_cycle"
    await complete(scene, first)
    await complete(scene, second)
    assert await follow(scene) == 1


def follows(job: str, when: When = When.COMPLETED, **gives: str) -> dict[str, Any]:
    """Rules of a job that follows one in other words than its name."""
    follow = Follow(job, when, gives)
    return {"after": (job,), "follows": (follow,), "handed": dict.fromkeys(gives, Input())}


@pytest.mark.parametrize(
    ("result", "followers"),
    [
        (AttemptResult.COMPLETED, {"after", "any"}),
        (AttemptResult.FAILED, {"repair", "any"}),
        (AttemptResult.TIMED_OUT, {"repair", "any"}),
        (AttemptResult.CANCELLED, {"any"}),
    ],
)
async def test_each_end_is_followed_by_those_that_follow_such(
    scene: Scene, result: AttemptResult, followers: set[str]
) -> None:
    upstream = await scene.job("extract")
    jobs = {
        "after": await scene.job("after", after=("extract",)),
        "repair": await scene.job("repair", **follows("extract", When.FAILED)),
        "any": await scene.job("any", **follows("extract", When.ENDED)),
    }
    [run] = await scene.trigger(upstream)
    worker = await scene.worker()
    works = await scene.claim(worker)
    if result is AttemptResult.CANCELLED:
        await scene.store.cancel([run], actor="person")
    await scene.finish(worker, works, result)

    await follow(scene)
    await follow(scene)

    found = {name: [each.follows for each in await runs_of(scene, jobs[name])] for name in jobs}
    assert found == {name: [run] if name in followers else [] for name in jobs}


async def test_only_the_end_of_all_attempts_is_followed(scene: Scene) -> None:
    upstream = await scene.job("extract", retry=Retry(attempts=2))
    follower = await scene.job("repair", **follows("extract", When.ENDED))
    [run] = await scene.trigger(upstream)
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)
    await follow(scene)
    assert await runs_of(scene, follower) == []

    await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)
    await follow(scene)

    assert [each.follows for each in await runs_of(scene, follower)] == [run]


@pytest.mark.parametrize("end", ["cancelled", "deadline"])
async def test_a_run_that_ends_while_it_waits_is_followed(scene: Scene, end: str) -> None:
    upstream = await scene.job("extract", deadline=HOUR)
    follower = await scene.job("repair", **follows("extract", When.ENDED))
    [run] = await scene.trigger(upstream)
    if end == "cancelled":
        await scene.store.cancel([run], actor="person")
    else:
        scene.advance(2 * HOUR)
        await scene.store.release_forgotten(100)

    await follow(scene)

    assert await scene.state(run) in (RunState.CANCELLED, RunState.TIMED_OUT)
    assert [each.follows for each in await runs_of(scene, follower)] == [run]


async def test_a_due_time_that_did_not_run_is_not_followed(scene: Scene) -> None:
    await scene.job("extract")
    job_id = await due_after(scene, "extract", overlap=Overlap.QUEUE_ONE)
    follower = await scene.job("repair", **follows("report", When.ENDED))
    first = await scene.scheduled_run(job_id, every=HOUR)
    await scene.scheduled_run(job_id, every=HOUR)

    await follow(scene)

    assert await scene.state(first.id) is RunState.SKIPPED
    assert await runs_of(scene, follower) == []


async def test_a_failure_that_a_person_states_is_followed(scene: Scene) -> None:
    upstream = await scene.job("extract", delivery="at_most_once")
    follower = await scene.job("repair", **follows("extract", When.FAILED))
    await scene.trigger(upstream)
    worker = await scene.worker()
    [work] = await scene.claim(worker)
    await scene.start(worker, [work])
    await scene.store.end_session(worker)

    await scene.store.resolve(RunId(work.run), RunState.FAILED, actor="person")
    await follow(scene)

    assert [run.follows for run in await runs_of(scene, follower)] == [work.run]


async def test_values_are_handed_on_and_kept_with_the_run(scene: Scene) -> None:
    upstream = await scene.job("extract")
    rules = follows("extract", When.ENDED, rows="outputs.rows", how="state", run="run")
    rules["handed"]["rows"] = Input(InputType.INTEGER)
    follower = await scene.job("load", **rules)
    plain = await scene.job("plain", after=("extract",))
    [run] = await scene.trigger(upstream)
    worker = await scene.worker()

    await scene.finish(worker, await scene.claim(worker), outputs={"rows": 12, "more": [1]})
    await follow(scene)

    [loading] = await runs_of(scene, follower)
    assert loading.inputs == {"rows": 12, "how": "completed", "run": run}
    assert [each.inputs for each in await runs_of(scene, plain)] == [None]


async def test_a_file_that_is_handed_on_is_that_of_the_last_attempt_and_is_kept(
    scene: Scene,
) -> None:
    upstream = await scene.job("extract", retry=Retry(attempts=2))
    rules = follows("extract", data="artifacts.out/data.csv")
    rules["handed"]["data"] = Input(InputType.FILE)
    follower = await scene.job("load", **rules)
    await scene.trigger(upstream)
    worker = await scene.worker()
    for digit, result in (("1", AttemptResult.FAILED), ("2", AttemptResult.COMPLETED)):
        works = await scene.claim(worker)
        file = KeptFile(f"f_{digit}", "default", f"sha256:{digit * 64}", 7)
        await scene.store.begin_file(file, None)
        use = NewArtifact(worker, works[0].fence, 0, "out/data.csv", timedelta(minutes=1))
        await scene.store.finish_file(file, use)
        await scene.finish(worker, works, result)
        await scene.release()

    await follow(scene)

    [loading] = await runs_of(scene, follower)
    digest = "sha256:" + "2" * 64
    assert loading.inputs == {"data": {"file": "data.csv", "digest": digest, "size": 7}}
    scene.advance(timedelta(days=29))
    await scene.store.forget_artifacts(10)
    assert [spent.file.digest for spent in await scene.store.spent_files(10)] == [
        "sha256:" + "1" * 64
    ]


async def test_a_file_that_was_not_left_is_not_handed_on(scene: Scene) -> None:
    upstream = await scene.job("extract")
    rules = follows("extract", data="artifacts.data.csv")
    rules["handed"]["data"] = Input(InputType.FILE)
    follower = await scene.job("load", **rules)
    [run] = await scene.trigger(upstream)
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker))

    await follow(scene)

    [loading] = await runs_of(scene, follower)
    assert loading.message == f'input "data": {run} of extract kept no artifact "data.csv"'


async def test_a_run_that_is_not_handed_what_it_needs_fails_and_is_followed_itself(
    scene: Scene,
) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", **follows("extract", rows="outputs.rows"))
    cleaner = await scene.job("clean", **follows("load", When.FAILED, run="run"))
    [run] = await scene.trigger(upstream)
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker), outputs={"row": 12})

    await follow(scene)
    await follow(scene)

    [loading] = await runs_of(scene, follower)
    assert (loading.state, loading.cause, loading.attempt) == (RunState.FAILED, "input", 0)
    assert loading.ended_at is not None
    assert loading.message == (
        f'input "rows": "rows" is not there in the outputs of {run} of extract'
        ' (did you mean "row"?)'
    )
    [cleaning] = await runs_of(scene, cleaner)
    assert (cleaning.follows, cleaning.inputs) == (loading.id, {"run": loading.id})
    assert await scene.claim(worker) != []  # the cleaner, and nothing of the failed one


async def test_the_run_of_a_paused_follower_keeps_what_it_was_handed(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("load", **follows("extract", rows="outputs.rows"))
    await scene.move("paused", follower)
    [_] = await scene.trigger(upstream)
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker), outputs={"rows": 12})
    await follow(scene)
    [held] = await runs_of(scene, follower)

    await scene.move("resumed", follower)
    await scene.release()
    works = await scene.claim(worker)

    assert held.state is RunState.BLOCKED
    assert [(work.run, work.inputs) for work in works] == [(held.id, {"rows": "12"})]


async def test_two_servers_make_one_run_of_an_end(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("repair", **follows("extract", When.FAILED, run="run"))
    runs = [await complete(scene, upstream, AttemptResult.FAILED) for _ in range(5)]

    for _ in range(3):
        await asyncio.gather(*(scene.store.follow_ends(3) for _ in range(4)))

    assert {run.follows for run in await runs_of(scene, follower)} == set(runs)
    assert len(await runs_of(scene, follower)) == 5


async def test_runs_are_found_from_the_one_that_they_follow(scene: Scene) -> None:
    upstream = await scene.job("extract")
    await scene.job("load", after=("extract",))
    await scene.job("report", after=("extract",))
    run = await complete(scene, upstream)
    await follow(scene)

    found = await scene.store.runs_following(run, 10)

    assert {(each.job, each.state) for each in found} == {
        ("load", RunState.QUEUED),
        ("report", RunState.QUEUED),
    }
    assert len(await scene.store.runs_following(run, 1)) == 1
    assert await scene.store.runs_following(found[0].id, 10) == []


async def test_ends_that_nobody_follows_are_not_kept(scene: Scene) -> None:
    upstream = await scene.job("extract")
    await scene.job("load", after=("extract",))
    await complete(scene, upstream, AttemptResult.FAILED)
    [run] = await scene.trigger(upstream)
    await scene.store.cancel([run], actor="person")

    assert await scene.store.follow_ends(100) == 0


async def test_an_end_that_is_left_again_is_followed_once(scene: Scene) -> None:
    upstream = await scene.job("extract")
    follower = await scene.job("repair", **follows("extract", When.FAILED, run="run"))
    run = await complete(scene, upstream, AttemptResult.FAILED)
    await follow(scene)
    assert isinstance(scene.store, SqlStore)

    await scene.store.write(lambda tx: leave_ends(tx, [run]))

    assert await follow(scene) == 1
    assert [each.follows for each in await runs_of(scene, follower)] == [run]
