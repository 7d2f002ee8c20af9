from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.domain import gates
from rota.domain.ids import JobId, RunId, SessionId
from rota.domain.run import AttemptResult
from rota.domain.spec import Overlap, Retry
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.work import Work
from rota.store.script import Script, query
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene, closed_until, firing_of

pytestmark = pytest.mark.anyio
RETRY = Retry(attempts=3, delay=timedelta(seconds=90))


async def scheduled_job(scene: Scene, overlap: Overlap, **rules: Any) -> JobId:
    return await scene.job(next_at=scene.clock.instant + MINUTE, overlap=overlap, **rules)


async def running(scene: Scene, worker: SessionId, job_id: JobId) -> Work:
    """The next scheduled run of a job, claimed."""
    await scene.scheduled_run(job_id)
    [work] = await scene.claim(worker)
    return work


async def test_skip_drops_a_run_that_would_overlap(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.SKIP)
    await scene.scheduled_run(job_id)

    second = await scene.scheduled_run(job_id)

    assert (second.state, second.cause) == (RunState.SKIPPED, "overlap")
    assert second.ended_at == scene.clock.instant


async def test_queue_one_lets_the_newest_wait_and_skips_the_older(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.QUEUE_ONE)
    worker = await scene.worker()
    first = await running(scene, worker, job_id)

    second, third = await scene.scheduled_run(job_id), await scene.scheduled_run(job_id)
    superseded = await scene.show(second.id)
    await scene.finish(worker, [first])

    assert (second.state, third.state) == (RunState.BLOCKED, RunState.BLOCKED)
    assert (superseded.state, superseded.cause) == (RunState.SKIPPED, "superseded")
    assert await scene.state(third.id) is RunState.QUEUED


async def test_queue_all_runs_every_due_time_one_after_another(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.QUEUE_ALL)
    worker = await scene.worker(slots=10)
    runs = [(await scene.scheduled_run(job_id)).id for _ in range(3)]

    served = []
    for _ in runs:
        [work] = await scene.claim(worker)
        served.append(work.run)
        await scene.finish(worker, [work])

    assert served == runs


async def test_cancel_previous_asks_the_running_one_to_stop_and_waits_for_it(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.CANCEL_PREVIOUS)
    worker = await scene.worker()
    first = await running(scene, worker, job_id)

    second = await scene.scheduled_run(job_id)
    asked = await scene.store.cancels(worker)
    await scene.finish(worker, [first], AttemptResult.CANCELLED)

    assert asked == (first.fence,)
    assert second.state is RunState.BLOCKED
    assert await scene.states([first.run, second.id]) == [RunState.CANCELLED, RunState.QUEUED]


async def test_cancel_previous_goes_at_once_where_the_previous_had_not_begun(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.CANCEL_PREVIOUS)
    first = await scene.scheduled_run(job_id)

    second = await scene.scheduled_run(job_id)

    assert await scene.states([first.id, second.id]) == [RunState.CANCELLED, RunState.QUEUED]


async def test_allow_runs_side_by_side(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.ALLOW)

    runs = [await scene.scheduled_run(job_id) for _ in range(3)]

    assert [run.state for run in runs] == [RunState.QUEUED] * 3


@pytest.mark.parametrize(
    ("overlap", "state"),
    [
        (Overlap.SKIP, RunState.SKIPPED),
        (Overlap.QUEUE_ONE, RunState.BLOCKED),
        (Overlap.QUEUE_ALL, RunState.BLOCKED),
        (Overlap.ALLOW, RunState.QUEUED),
    ],
)
async def test_a_run_in_back_off_is_active(scene: Scene, overlap: Overlap, state: RunState) -> None:
    job_id = await scheduled_job(scene, overlap, retry=RETRY)
    worker = await scene.worker()
    first = await running(scene, worker, job_id)
    await scene.finish(worker, [first], AttemptResult.FAILED)

    second = await scene.scheduled_run(job_id)

    assert await scene.state(first.run) is RunState.SCHEDULED
    assert second.state is state


async def test_a_retry_goes_before_the_run_that_waited_for_it(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.QUEUE_ONE, retry=RETRY)
    worker = await scene.worker()
    first = await running(scene, worker, job_id)
    await scene.finish(worker, [first], AttemptResult.FAILED)
    second = await scene.scheduled_run(job_id)
    scene.advance(2 * MINUTE)

    await scene.release()
    [again] = await scene.claim(worker)
    await scene.finish(worker, [again])

    assert (again.run, again.attempt) == (first.run, 2)
    assert await scene.state(second.id) is RunState.QUEUED


async def test_cancel_previous_ends_a_run_in_back_off(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.CANCEL_PREVIOUS, retry=RETRY)
    worker = await scene.worker()
    first = await running(scene, worker, job_id)
    await scene.finish(worker, [first], AttemptResult.FAILED)

    second = await scene.scheduled_run(job_id)

    assert await scene.states([first.run, second.id]) == [RunState.CANCELLED, RunState.QUEUED]


async def test_an_unknown_run_is_active_until_it_is_resolved(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.QUEUE_ONE, delivery="at_most_once")
    worker = await scene.worker()
    first = await running(scene, worker, job_id)
    await scene.start(worker, [first])
    await scene.store.end_session(worker)

    second = await scene.scheduled_run(job_id)
    await scene.store.resolve(RunId(first.run), RunState.FAILED, actor="person")

    assert second.state is RunState.BLOCKED
    assert await scene.state(second.id) is RunState.QUEUED


async def test_manual_runs_are_never_dropped_nor_held_by_the_overlap_rule(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.SKIP)
    await scene.scheduled_run(job_id)

    runs = await scene.trigger(job_id, 10)

    assert await scene.states(runs) == [RunState.QUEUED] * 10


async def test_a_scheduled_run_does_not_wait_for_manual_ones(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.QUEUE_ONE)
    await scene.trigger(job_id, 3)

    run = await scene.scheduled_run(job_id)

    assert run.state is RunState.QUEUED


async def test_max_concurrency_holds_and_every_end_releases_one(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=2, retry=RETRY)
    worker = await scene.worker()
    await scene.trigger(job_id, 5)
    results = [AttemptResult.COMPLETED, AttemptResult.CANCELLED, AttemptResult.FAILED]

    for result in results:
        held = await scene.claim(worker)
        sessions = await scene.store.sessions(alive_only=True)
        assert sessions[0].held == 2
        await scene.finish(worker, held[:1], result)
        assert (await scene.store.counts()).runs["QUEUED", "default"] == 1


async def test_a_run_that_waited_for_its_time_takes_a_slot_like_any_other(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    await scene.trigger(job_id, at=scene.clock.instant + MINUTE)
    scene.advance(MINUTE)
    await scene.release()

    [second] = await scene.trigger(job_id)

    assert await scene.state(second) is RunState.BLOCKED


async def test_a_blocked_run_says_why(scene: Scene) -> None:
    job_id = await scene.job("backup", max_concurrency=1)
    [_, second] = await scene.trigger(job_id, 2)

    [reason] = (await scene.show(second)).reasons

    assert (reason.gate, reason.key) == ("max_concurrency", f"job:{job_id}")
    assert "backup" in reason.message


async def test_a_trigger_waits_for_a_slot_however_many_due_times_wait_for_one_another(
    scene: Scene,
) -> None:
    job_id = await scheduled_job(scene, Overlap.QUEUE_ALL, max_concurrency=2)
    worker = await scene.worker()
    await scene.scheduled_run(job_id)
    [first] = await scene.trigger(job_id)
    works = await scene.claim(worker)
    due = [scene.clock.instant + n * timedelta(seconds=1) for n in range(1, 251)]
    scene.advance(timedelta(minutes=10))
    job = await scene.show_job(job_id)
    await scene.fire_all([firing_of(job, *due)])
    [second] = await scene.trigger(job_id)

    await scene.finish(worker, [work for work in works if work.run == first])

    assert await scene.state(second) is RunState.QUEUED


async def test_cancelling_a_queued_run_frees_its_slot(scene: Scene, published: list[Wakes]) -> None:
    job_id = await scene.job(max_concurrency=1)
    first, second = await scene.trigger(job_id, 2)

    await scene.store.cancel([first], actor="user")
    wakes = published[-1]

    assert await scene.state(second) is RunState.QUEUED
    assert set(wakes.pools) == {"default"}


async def test_a_lost_worker_frees_its_slots(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    _, second = await scene.trigger(job_id, 2)
    worker = await scene.worker()
    await scene.claim(worker)

    await scene.store.end_session(worker)

    assert await scene.state(second) is RunState.QUEUED


async def test_a_limit_that_is_set_later_counts_what_runs_already(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.trigger(job_id, 2)
    worker = await scene.worker(slots=1)
    [work] = await scene.claim(worker)

    await scene.change(job_id, max_concurrency=2)
    [third] = await scene.trigger(job_id)
    before = await scene.state(third)
    await scene.finish(worker, [work])

    assert (before, await scene.state(third)) == (RunState.BLOCKED, RunState.QUEUED)


async def test_a_limit_that_is_set_later_counts_what_was_released_before(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.trigger(job_id, at=scene.clock.instant + MINUTE)
    scene.advance(MINUTE)
    await scene.release()

    await scene.change(job_id, max_concurrency=1)
    [second] = await scene.trigger(job_id)

    assert await scene.state(second) is RunState.BLOCKED


@pytest.mark.parametrize("limit", [None, 5])
async def test_a_released_run_counts_where_it_would_if_it_had_been_queued_at_once(
    scene: Scene, limit: int | None
) -> None:
    job_id = await scene.job(max_concurrency=limit)
    [delayed] = await scene.trigger(job_id, at=scene.clock.instant + MINUTE)
    scene.advance(MINUTE)
    await scene.release()
    [at_once] = await scene.trigger(job_id)

    expected = set() if limit is None else {job_id}
    assert await scene.states([delayed, at_once]) == [RunState.QUEUED] * 2
    assert await gates_of(scene, delayed) == await gates_of(scene, at_once) == expected


async def gates_of(scene: Scene, run: RunId) -> set[str]:
    """The jobs at whose gates a run counts."""
    assert isinstance(scene.store, SqlStore)

    def script(_: int) -> Script[set[str]]:
        return {row["job_id"] for row in (yield query("gates_of_runs", ids=[run]))}

    return await scene.store._driver.read(script)


async def test_a_limit_that_is_lowered_holds_back_until_enough_have_ended(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=3)
    await scene.trigger(job_id, 4)
    worker = await scene.worker()
    works = await scene.claim(worker)

    await scene.change(job_id, max_concurrency=1)
    for work in works:
        assert await scene.claim(worker) == []
        await scene.finish(worker, [work])

    assert len(await scene.claim(worker)) == 1


async def test_a_limit_that_is_lifted_releases_everything(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    runs = await scene.trigger(job_id, 500)

    await scene.change(job_id, max_concurrency=None)

    assert (await scene.store.counts()).runs == {("QUEUED", "default"): len(runs)}


async def test_a_run_that_was_tried_is_never_superseded(scene: Scene) -> None:
    job_id = await scheduled_job(scene, Overlap.QUEUE_ONE, retry=RETRY, max_concurrency=1)
    worker = await scene.worker()
    first = await running(scene, worker, job_id)
    await scene.finish(worker, [first], AttemptResult.FAILED)
    await scene.trigger(job_id)
    scene.advance(2 * MINUTE)
    await scene.release()

    await scene.scheduled_run(job_id)

    assert await scene.state(first.run) is RunState.BLOCKED


async def test_a_waiting_run_past_its_deadline_times_out(scene: Scene) -> None:
    job_id = await scene.job(deadline=MINUTE, max_concurrency=1)
    first, second = await scene.trigger(job_id, 2)
    scene.advance(MINUTE)

    released = await scene.store.release_forgotten(100)

    assert released == 2
    assert await scene.states([first, second]) == [RunState.TIMED_OUT] * 2
    assert (await scene.show(first)).cause == "deadline"


class TestClosedJobs:
    """A gate that closes whole jobs is opened by the sweep, whatever the gate is."""

    async def test_runs_of_a_closed_job_wait_until_it_opens(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opens_at = scene.clock.instant + 3 * MINUTE
        monkeypatch.setattr(gates, "CLOSINGS", (*gates.CLOSINGS, closed_until(opens_at)))
        job_id = await scheduled_job(scene, Overlap.QUEUE_ALL)
        due = (await scene.scheduled_run(job_id)).id
        [asked] = await scene.trigger(job_id)
        await scene.store.release_forgotten(100)
        closed = [await scene.show(run) for run in (due, asked)]

        scene.advance(opens_at - scene.clock.instant)
        await scene.store.release_forgotten(100)
        await scene.release()

        assert {run.state for run in closed} == {RunState.BLOCKED}
        assert {run.reasons[0].key for run in closed} == {f"calendar:{job_id}"}
        assert await scene.states([due, asked]) == [RunState.QUEUED] * 2

    async def test_a_gate_that_is_taken_away_lets_its_runs_go(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closing = closed_until(scene.clock.instant + 3 * MINUTE)
        monkeypatch.setattr(gates, "CLOSINGS", (*gates.CLOSINGS, closing))
        [run] = await scene.trigger(await scene.job())

        never = replace(closing, reason=lambda *_: None)
        monkeypatch.setattr(gates, "CLOSINGS", (*gates.CLOSINGS[:-1], never))
        await scene.store.release_forgotten(100)
        await scene.release()

        assert await scene.state(run) is RunState.QUEUED

    async def test_the_end_of_a_pause_leaves_runs_at_the_gate_that_is_still_closed(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opens_at = scene.clock.instant + 3 * MINUTE
        monkeypatch.setattr(gates, "CLOSINGS", (*gates.CLOSINGS, closed_until(opens_at)))
        job_id = await scene.job()
        await scene.move("paused", job_id)
        [run] = await scene.trigger(job_id)
        paused = await scene.show(run)

        await scene.move("resumed", job_id)
        await scene.release()

        after = await scene.show(run)
        assert [each.reasons[0].gate for each in (paused, after)] == ["pause", "calendar"]
        assert after.reasons[0].eligible_at == opens_at

    async def test_the_sweep_leaves_a_paused_job_alone(self, scene: Scene) -> None:
        job_id = await scene.job()
        await scene.move("paused", job_id)
        [run] = await scene.trigger(job_id)

        assert await scene.store.release_forgotten(100) == 0
        assert await scene.state(run) is RunState.BLOCKED
