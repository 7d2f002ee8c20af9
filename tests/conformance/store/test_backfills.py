from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from rota.domain.backfill import DueRun
from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import JobId, RunId, micros, new_backfill_id, new_run_id
from rota.domain.run import AttemptResult, Run, Trigger
from rota.domain.spec import Late, Overlap, Retry
from rota.domain.states import RunState
from rota.ports.records import Answered, Idempotency, NewRun, RemovedJob, RunQuery
from testkit.builders import MINUTE, Scene, firing_of

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)
WAITING = RunState.BLOCKED
GOING = RunState.QUEUED


def past(scene: Scene, count: int) -> list[datetime]:
    """Daily due times that lie behind, the oldest first."""
    return [scene.clock.instant - day * DAY for day in range(count, 0, -1)]


async def backfilled(
    scene: Scene, job_id: JobId, count: int, *, max_parallel: int = 1
) -> list[RunId]:
    """The runs of a new backfill, in order of their due times."""
    made = await scene.backfill(job_id, past(scene, count), max_parallel=max_parallel)
    return [run.id for run in await scene.backfilled(made.backfill.id)]


def gates_of(run: Run) -> list[str]:
    return [reason.gate for reason in run.reasons]


async def test_a_run_of_a_backfill_has_the_due_time_of_the_past(scene: Scene) -> None:
    job_id = await scene.job(priority=5)
    [failed] = await scene.trigger(job_id)
    due = past(scene, 2)

    made = await scene.backfill(job_id, due, priority=3, retry_of=failed)

    runs = await scene.backfilled(made.backfill.id)
    assert [run.due_at for run in runs] == due
    assert {(run.trigger, run.priority, run.retry_of) for run in runs} == {
        (Trigger.BACKFILL, 3, failed)
    }
    assert {run.created_at for run in runs} == {scene.clock.instant}


async def test_the_worker_is_told_the_due_time_of_the_past(scene: Scene) -> None:
    job_id = await scene.job()
    [due] = past(scene, 1)
    await scene.backfill(job_id, [due])

    [work] = await scene.claim(await scene.worker())

    assert work.due_at == micros(due)


class TestTurns:
    @pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.QUEUE_ONE])
    async def test_runs_go_in_the_order_of_their_due_times(
        self, scene: Scene, overlap: Overlap
    ) -> None:
        runs = await backfilled(scene, await scene.job(overlap=overlap), 3)
        worker = await scene.worker()

        served = []
        for _ in runs:
            [work] = await scene.claim(worker)
            served.append(work.run)
            await scene.finish(worker, [work])

        assert served == runs

    @pytest.mark.parametrize(
        "result", [AttemptResult.COMPLETED, AttemptResult.FAILED, AttemptResult.CANCELLED]
    )
    async def test_every_end_lets_one_more_go(self, scene: Scene, result: AttemptResult) -> None:
        runs = await backfilled(scene, await scene.job(), 5, max_parallel=2)
        worker = await scene.worker()

        before = await scene.states(runs)
        works = await scene.claim(worker)
        await scene.finish(worker, works[:1], result)

        assert before == [GOING, GOING, WAITING, WAITING, WAITING]
        assert await scene.states(runs[2:]) == [GOING, WAITING, WAITING]

    async def test_who_waits_says_why(self, scene: Scene) -> None:
        made = await scene.backfill(await scene.job("tidy"), past(scene, 2))

        _, second = await scene.backfilled(made.backfill.id)

        [reason] = second.reasons
        assert (reason.gate, reason.key) == ("backfill", f"backfill:{made.backfill.id}")
        assert "tidy" in reason.message

    async def test_backfills_take_turns_apart(self, scene: Scene) -> None:
        job_id = await scene.job()
        first = await backfilled(scene, job_id, 2)
        scene.advance(MINUTE)

        second = await backfilled(scene, job_id, 2)

        assert await scene.states([*first, *second]) == [GOING, WAITING] * 2

    async def test_cancelling_lets_the_next_one_go(self, scene: Scene) -> None:
        runs = await backfilled(scene, await scene.job(), 3)

        await scene.store.cancel(runs[:2], actor="user")

        assert await scene.state(runs[2]) is GOING

    async def test_a_lost_worker_gives_its_turn_away(self, scene: Scene) -> None:
        runs = await backfilled(scene, await scene.job(), 2)
        worker = await scene.worker()
        await scene.claim(worker)

        await scene.store.end_session(worker)

        assert await scene.states(runs) == [RunState.SCHEDULED, GOING]

    async def test_a_retry_takes_the_next_turn_after_its_back_off(self, scene: Scene) -> None:
        job_id = await scene.job(retry=Retry(attempts=2, delay=MINUTE))
        first, second, third = await backfilled(scene, job_id, 3)
        worker = await scene.worker()
        await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)
        scene.advance(MINUTE)

        await scene.release()
        behind = await scene.states([first, second, third])
        await scene.finish(worker, await scene.claim(worker))

        assert behind == [WAITING, GOING, WAITING]
        assert await scene.states([first, second, third]) == [GOING, RunState.COMPLETED, WAITING]

    async def test_an_unknown_run_keeps_its_turn_until_it_is_resolved(self, scene: Scene) -> None:
        job_id = await scene.job(delivery="at_most_once")
        first, second = await backfilled(scene, job_id, 2)
        worker = await scene.worker()
        await scene.start(worker, await scene.claim(worker))
        await scene.store.end_session(worker)

        before = await scene.states([first, second])
        await scene.store.resolve(first, RunState.COMPLETED, actor="person")

        assert before == [RunState.UNKNOWN, WAITING]
        assert await scene.state(second) is GOING


class TestLiveWork:
    async def test_the_overlap_policy_does_not_see_backfills(self, scene: Scene) -> None:
        job_id = await scene.job(next_at=scene.clock.instant + MINUTE, overlap=Overlap.SKIP)
        await scene.scheduled_run(job_id)

        runs = await backfilled(scene, job_id, 2, max_parallel=2)
        worker = await scene.worker()
        due = [work for work in await scene.claim(worker) if work.run not in runs]
        await scene.finish(worker, due)
        live = await scene.scheduled_run(job_id)

        assert live.state is GOING
        assert await scene.states(runs) == [RunState.CLAIMED] * 2

    async def test_the_limit_of_the_job_holds_too(self, scene: Scene) -> None:
        job_id = await scene.job(max_concurrency=2)
        await scene.trigger(job_id)

        runs = await backfilled(scene, job_id, 3, max_parallel=3)

        assert await scene.states(runs) == [GOING, WAITING, WAITING]
        assert gates_of(await scene.show(runs[1])) == ["max_concurrency"]

    async def test_live_runs_go_before_a_backfill_that_waited_longer(self, scene: Scene) -> None:
        job_id = await scene.job(max_concurrency=1)
        runs = await backfilled(scene, job_id, 3, max_parallel=3)
        live = await scene.trigger(job_id, 2)
        worker = await scene.worker()

        served = []
        for _ in range(5):
            [work] = await scene.claim(worker)
            served.append(work.run)
            await scene.finish(worker, [work])

        assert served == [runs[0], *live, *runs[1:]]

    async def test_a_limit_that_is_lifted_lets_the_backfill_go_on(self, scene: Scene) -> None:
        job_id = await scene.job(max_concurrency=1)
        runs = await backfilled(scene, job_id, 4, max_parallel=3)

        await scene.change(job_id, max_concurrency=None)

        assert await scene.states(runs) == [GOING, GOING, GOING, WAITING]

    async def test_what_is_long_past_cannot_be_late(self, scene: Scene) -> None:
        job_id = await scene.job(deadline=MINUTE, start_within=MINUTE, late=Late.DROP)
        runs = await backfilled(scene, job_id, 2)
        scene.advance(DAY)

        await scene.store.release_forgotten(100)

        assert await scene.states(runs) == [GOING, WAITING]
        first = await scene.show(runs[0])
        assert (first.deadline_at, first.is_late) == (None, None)


class TestPause:
    async def test_a_pause_holds_a_backfill_and_its_end_goes_on_with_it(self, scene: Scene) -> None:
        job_id = await scene.job()
        runs = await backfilled(scene, job_id, 4, max_parallel=2)

        await scene.move("paused", job_id)
        held = [await scene.show(run) for run in runs]
        await scene.move("resumed", job_id)

        assert {(run.state, *gates_of(run)) for run in held} == {(WAITING, "pause")}
        assert await scene.states(runs) == [GOING, GOING, WAITING, WAITING]
        assert gates_of(await scene.show(runs[2])) == ["backfill"]

    async def test_the_turns_go_on_after_a_pause(self, scene: Scene) -> None:
        job_id = await scene.job()
        runs = await backfilled(scene, job_id, 3)
        await scene.move("paused", job_id)
        await scene.move("resumed", job_id)
        worker = await scene.worker()

        await scene.finish(worker, await scene.claim(worker))

        assert await scene.states(runs) == [RunState.COMPLETED, GOING, WAITING]

    async def test_nothing_of_it_starts_while_the_pause_lasts(self, scene: Scene) -> None:
        job_id = await scene.job()
        runs = await backfilled(scene, job_id, 2)
        worker = await scene.worker()
        works = await scene.claim(worker)
        await scene.move("paused", job_id)

        await scene.finish(worker, works)

        assert await scene.states(runs) == [RunState.COMPLETED, WAITING]

    async def test_a_backfill_of_a_paused_job_waits_for_its_end(self, scene: Scene) -> None:
        job_id = await scene.job()
        await scene.move("paused", job_id)

        runs = await backfilled(scene, job_id, 2)
        before = await scene.states(runs)
        await scene.move("resumed", job_id)

        assert before == [WAITING, WAITING]
        assert await scene.states(runs) == [GOING, WAITING]


class TestAsking:
    async def test_the_same_key_and_body_give_the_first_answer(self, scene: Scene) -> None:
        job_id = await scene.job()
        key = Idempotency("key", "digest")

        first = await scene.backfill(job_id, past(scene, 3), max_parallel=2, key=key)
        again = await scene.backfill(job_id, past(scene, 1), key=key)

        assert again.backfill == first.backfill
        assert (first.is_repeat, again.is_repeat) == (False, True)
        assert len(await scene.store.runs(RunQuery())) == 3

    async def test_the_same_key_with_another_body_is_refused(self, scene: Scene) -> None:
        job_id = await scene.job()
        await scene.backfill(job_id, past(scene, 1), key=Idempotency("key", "digest"))
        scene.advance(MINUTE)

        with pytest.raises(Conflict) as conflict:
            await scene.backfill(job_id, past(scene, 1), key=Idempotency("key", "other"))

        assert conflict.value.code == "idempotency_key_reused"

    async def test_a_due_time_that_is_being_backfilled_is_taken(self, scene: Scene) -> None:
        job_id = await scene.job()
        due = past(scene, 3)
        await scene.backfill(job_id, due[1:2])

        with pytest.raises(Conflict) as conflict:
            await scene.backfill(job_id, due)
        apart = await scene.backfill(job_id, [due[0], due[2]])

        assert conflict.value.code == "backfill_overlaps"
        assert len(await scene.store.runs(RunQuery())) == 1 + apart.backfill.runs

    async def test_a_due_time_may_be_backfilled_again_once_that_is_over(self, scene: Scene) -> None:
        job_id = await scene.job()
        due = past(scene, 1)
        worker = await scene.worker()
        await scene.backfill(job_id, due)
        await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)

        again = await scene.backfill(job_id, due)

        assert again.backfill.runs == 1

    async def test_a_backfill_without_due_times_is_kept(self, scene: Scene) -> None:
        job_id = await scene.job()
        key = Idempotency("key", "digest")

        first = await scene.backfill(job_id, [], key=key)
        again = await scene.backfill(job_id, past(scene, 3), key=key)

        assert (again.backfill, again.backfill.runs) == (first.backfill, 0)

    async def test_a_deleted_job_has_no_backfill(self, scene: Scene) -> None:
        job_id = await scene.job()
        made = await scene.backfill(job_id, [])
        await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")
        run = NewRun(
            new_run_id(scene.clock.instant),
            job_id,
            1,
            Trigger.BACKFILL,
            "user",
            due_at=scene.clock.instant,
        )

        with pytest.raises(NotFound):
            await scene.store.submit_backfill(replace(made.backfill, id=new_backfill_id()), [run])

    async def test_it_is_an_event_of_the_job(self, scene: Scene) -> None:
        job_id = await scene.job()

        made = await scene.backfill(job_id, past(scene, 2))

        events = await scene.store.events(0, 100, ids=[job_id])
        assert [(event.kind, event.actor) for event in events][-1] == ("job.backfilled", "user")
        assert events[-1].data == {"backfill": made.backfill.id, "runs": 2}


class TestHistory:
    async def test_runs_of_a_due_time_are_found_by_age(self, scene: Scene) -> None:
        job_id = await scene.job(next_at=scene.clock.instant)
        worker = await scene.worker()
        scheduled = await scene.scheduled_run(job_id)
        await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)
        other = scene.clock.instant - DAY
        made = await scene.backfill(job_id, [other, scheduled.due_at], max_parallel=2)
        runs = await scene.backfilled(made.backfill.id)

        found = await scene.store.due_runs(job_id, [scheduled.due_at])

        assert found == [
            DueRun(scheduled.id, scheduled.due_at, RunState.FAILED),
            DueRun(runs[1].id, scheduled.due_at, GOING),
        ]
        assert await scene.store.due_runs(job_id, []) == []

    async def test_runs_of_a_backfill_are_found_among_others(self, scene: Scene) -> None:
        job_id = await scene.job()
        await scene.trigger(job_id)
        made = await scene.backfill(job_id, past(scene, 3))
        await scene.trigger(job_id)
        query = RunQuery(backfill=made.backfill.id, states=[WAITING], limit=1)

        [newest] = await scene.store.runs(query)

        assert newest.due_at == made.backfill.last
        assert newest.backfill == made.backfill.id

    async def test_the_ledger_keeps_its_answer_and_names_the_run_beside_it(
        self, scene: Scene
    ) -> None:
        job_id = await scene.job(next_at=scene.clock.instant)
        worker = await scene.worker()
        scheduled = await scene.scheduled_run(job_id)
        await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)
        made = await scene.backfill(job_id, [scheduled.due_at])
        await scene.finish(worker, await scene.claim(worker))

        [entry] = await scene.store.ledger(job_id, scheduled.due_at, scene.clock.instant, 10)

        [run] = await scene.backfilled(made.backfill.id)
        assert (entry.state, entry.run) == (RunState.FAILED, scheduled.id)
        assert entry.backfilled_by == (run.id,)

    async def test_a_due_time_that_the_schedule_never_had_gets_an_entry_of_its_own(
        self, scene: Scene
    ) -> None:
        job_id = await scene.job(next_at=scene.clock.instant)
        scheduled = await scene.scheduled_run(job_id)
        later = await scene.scheduled_run(job_id)
        between = scheduled.due_at + (later.due_at - scheduled.due_at) / 2
        made = await scene.backfill(job_id, [between])

        entries = await scene.store.ledger(job_id, scheduled.due_at, scene.clock.instant, 10)

        [run] = await scene.backfilled(made.backfill.id)
        assert [entry.first for entry in entries] == [scheduled.due_at, between, later.due_at]
        assert [entry.run for entry in entries] == [scheduled.id, run.id, later.id]
        assert [entry.backfilled_by for entry in entries] == [(), (run.id,), ()]

    async def test_due_times_from_before_the_job_are_in_the_ledger_once_they_were_backfilled(
        self, scene: Scene
    ) -> None:
        due = past(scene, 3)
        job_id = await scene.job(next_at=scene.clock.instant + MINUTE)
        worker = await scene.worker()
        await scene.backfill(job_id, due)
        for _ in due:
            await scene.finish(worker, await scene.claim(worker))
        again = await scene.backfill(job_id, due[:1])

        entries = await scene.store.ledger(job_id, due[0], scene.clock.instant, 10)
        first_two = await scene.store.ledger(job_id, due[0], scene.clock.instant, 2)
        last_two = await scene.store.ledger(
            job_id, due[0], scene.clock.instant, 2, newest_first=True
        )

        [newest] = await scene.backfilled(again.backfill.id)
        assert [entry.first for entry in entries] == due
        assert [entry.first for entry in first_two] == due[:2]
        assert [entry.first for entry in last_two] == [due[2], due[1]]
        assert entries[0].run == newest.id
        assert len(entries[0].backfilled_by) == 2
        assert entries[1].state == RunState.COMPLETED

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_a_part_of_the_ledger_is_full_whatever_of_it_was_backfilled(
        self, scene: Scene, newest_first: bool
    ) -> None:
        due = past(scene, 4)
        job_id = await scene.job(next_at=due[1])
        missed = Answered(due[1], due[2], 2, RunState.MISSED, "downtime")
        job = await scene.show_job(job_id)
        await scene.fire_all([firing_of(job, runs=(), answered=[missed])])
        made = await scene.backfill(job_id, due)

        parts = [
            await scene.store.ledger(
                job_id, due[0], scene.clock.instant, limit, newest_first=newest_first
            )
            for limit in range(1, 5)
        ]

        first, second, third, fourth = await scene.backfilled(made.backfill.id)
        expected = [
            (due[0], first.id, (first.id,)),
            (due[1], None, (third.id, second.id)),
            (due[3], fourth.id, (fourth.id,)),
        ]
        if newest_first:
            expected.reverse()
        told = [[(each.first, each.run, each.backfilled_by) for each in part] for part in parts]
        assert told == [expected[:limit] for limit in range(1, 5)]

    async def test_a_stretch_of_the_ledger_names_the_newest_that_made_up_for_it(
        self, scene: Scene
    ) -> None:
        due = past(scene, 12)
        job_id = await scene.job(next_at=due[0])
        missed = Answered(due[0], due[-1], 12, RunState.MISSED, "downtime")
        job = await scene.show_job(job_id)
        await scene.fire_all([firing_of(job, runs=(), answered=[missed])])
        made = await scene.backfill(job_id, due)

        [entry] = await scene.store.ledger(job_id, due[0], scene.clock.instant, 10)

        runs = await scene.backfilled(made.backfill.id)
        assert entry.count == 12
        assert entry.backfilled_by == tuple(run.id for run in reversed(runs))[:10]
