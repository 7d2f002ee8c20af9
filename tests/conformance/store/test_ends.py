from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.ids import RunId, SessionId, micros
from rota.domain.run import AttemptResult, OutputState, StepReport
from rota.domain.spec import Delivery, Retry
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Finished, StoredChunk
from rota.ports.work import ChunkMeta, Fence, Progress, Report, Start, StepOutcome, Work
from testkit.builders import MINUTE, Scene, ends, outcome, reported
from tests.conformance.store.conftest import every_way

pytestmark = pytest.mark.anyio
SECOND = timedelta(seconds=1)
ONCE = Delivery.AT_MOST_ONCE


async def claimed(scene: Scene, **rules: Any) -> tuple[SessionId, Work]:
    """A worker's session and the one attempt it holds."""
    await scene.trigger(await scene.job(**rules))
    worker = await scene.worker()
    [work] = await scene.claim(worker)
    return worker, work


async def unknown_run(scene: Scene) -> tuple[SessionId, Work]:
    """An at_most_once run whose worker vanished while it ran."""
    worker, work = await claimed(scene, delivery=ONCE)
    await scene.start(worker, [work])
    await scene.store.end_session(worker)
    return worker, work


class TestStart:
    async def test_a_permit_makes_the_run_processing(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        scene.advance(SECOND)

        answer = await scene.start(worker, [work])

        run = await scene.show(work.run)
        assert answer.granted == (work.fence,)
        assert (run.state, run.started_at) == (RunState.PROCESSING, scene.clock.instant)

    async def test_a_permit_asked_twice_is_granted_twice(self, scene: Scene) -> None:
        worker, work = await claimed(scene)

        answers = [await scene.start(worker, [work]), await scene.start(worker, [work, work])]

        assert [answer.granted for answer in answers] == [(work.fence,)] * 2

    async def test_the_same_start_twice_in_a_batch_counts_once(self, scene: Scene) -> None:
        worker, work = await claimed(scene)

        answer = await scene.start(worker, [work, work])

        assert answer.granted == (work.fence,)

    async def test_a_cancel_that_came_first_wins(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.store.cancel([RunId(work.run)], actor="user")

        answer = await scene.start(worker, [work])

        assert (answer.granted, answer.cancelled) == ((), (work.fence,))
        assert await scene.state(work.run) is RunState.CLAIMED

    async def test_nobody_starts_what_is_not_theirs(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        other = await scene.worker("other")
        wrong_attempt, nowhere = Fence(work.run, 2), Fence("r_nope", 1)

        refused = [
            (await scene.start(other, [work])).refused,
            (await scene.start(worker, [wrong_attempt, nowhere])).refused,
        ]

        assert refused == [(work.fence,), (wrong_attempt, nowhere)]
        assert await scene.state(work.run) is RunState.CLAIMED

    async def test_what_has_ended_is_not_started(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.finish(worker, [work])

        assert (await scene.start(worker, [work])).refused == (work.fence,)

    async def test_a_refused_start_leaves_its_neighbours_unharmed(self, scene: Scene) -> None:
        worker, work = await claimed(scene)

        answer = await scene.start(worker, [Fence(work.run, 9), work])

        assert (answer.granted, answer.refused) == ((work.fence,), (Fence(work.run, 9),))

    async def test_a_start_lies_between_the_claim_and_now(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        claimed_at = scene.clock.instant

        await scene.store.start(worker, [Start(work.run, work.number, 0)])

        assert (await scene.show(work.run)).started_at == claimed_at


class TestFinish:
    async def test_an_attempt_that_ended_well_completes_the_run(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        scene.advance(SECOND)

        finished = await scene.finish(worker, [work], outputs={"rows": 3})

        run = await scene.show(work.run)
        assert (finished.refused, finished.again) == ((), ())
        assert (run.state, run.outputs) == (RunState.COMPLETED, {"rows": 3})
        assert (run.ended_at, run.first_started_at) == (scene.clock.instant, scene.clock.instant)

    async def test_everything_a_worker_tells_is_kept(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        steps = (StepOutcome("build", "completed", 0, None, 1.5, 2, 0.75, 2048, "oom"),)

        await scene.finish(
            worker,
            [work],
            exit_code=0,
            message="done",
            steps=steps,
            cpu_seconds=1.25,
            max_memory_bytes=4096,
            output=b"hello\n",
            output_bytes=6,
            output_lines=1,
            truncated=True,
        )

        [attempt] = await scene.store.attempts(RunId(work.run))
        assert (attempt.exit_code, attempt.message, attempt.worker) == (0, "done", "worker")
        assert attempt.steps == (
            StepReport("build", "completed", 0, None, 1.5, 2, 0.75, 2048, "oom"),
        )
        assert (attempt.usage.cpu_seconds, attempt.usage.max_memory_bytes) == (1.25, 4096)
        assert (attempt.output.state, attempt.output.lines) == (OutputState.INLINE, 1)
        assert attempt.output.truncated
        assert await scene.store.inline_output(RunId(work.run), 1) == b"hello\n"

    @pytest.mark.parametrize("result", [AttemptResult.COMPLETED, AttemptResult.FAILED])
    async def test_the_same_report_twice_is_acknowledged_twice(
        self, scene: Scene, result: AttemptResult
    ) -> None:
        worker, work = await claimed(scene)

        reports = [await scene.finish(worker, [work], result) for _ in range(2)]

        assert [report.refused for report in reports] == [()] * 2
        assert await scene.store.late_results(RunId(work.run)) == []
        assert len(await scene.store.attempts(RunId(work.run))) == 1

    @pytest.mark.parametrize("result", [AttemptResult.COMPLETED, AttemptResult.FAILED])
    async def test_a_report_twice_in_one_batch_counts_once(
        self, scene: Scene, result: AttemptResult
    ) -> None:
        worker, work = await claimed(scene, retry=Retry(attempts=5))

        finished = await scene.finish(worker, [work, work], result)

        assert (finished.refused, finished.again) == ((), ())
        assert (await scene.show(work.run)).failures == (result is AttemptResult.FAILED)

    async def test_a_report_about_an_attempt_that_was_followed_is_a_repeat(
        self, scene: Scene
    ) -> None:
        worker, work = await claimed(scene, retry=Retry(attempts=2))
        await scene.finish(worker, [work], AttemptResult.FAILED)
        await scene.release()
        await scene.claim(worker)

        again = await scene.finish(worker, [work], AttemptResult.FAILED)

        assert again.refused == ()
        assert await scene.state(work.run) is RunState.CLAIMED

    async def test_final_is_final(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.finish(worker, [work], AttemptResult.FAILED)
        ended_at = scene.clock.instant
        scene.advance(MINUTE)

        await scene.finish(worker, [work], AttemptResult.COMPLETED)

        run = await scene.show(work.run)
        assert (run.state, run.ended_at) == (RunState.FAILED, ended_at)

    @pytest.mark.parametrize("result", [AttemptResult.COMPLETED, AttemptResult.FAILED])
    async def test_another_session_cannot_finish_an_attempt(
        self, scene: Scene, result: AttemptResult
    ) -> None:
        _, work = await claimed(scene)
        thief = await scene.worker("thief")

        finished = await scene.finish(thief, [work], result)

        assert finished.refused == (work.fence,)
        assert await scene.state(work.run) is RunState.CLAIMED

    @pytest.mark.parametrize("result", [AttemptResult.COMPLETED, AttemptResult.FAILED])
    async def test_of_what_a_session_never_held_no_late_result_is_kept(
        self, scene: Scene, result: AttemptResult
    ) -> None:
        holder, foreign = await claimed(scene)
        thief = await scene.worker("thief")
        never = Fence(foreign.run, 7)

        stolen = await scene.store.finish(thief, reported(outcome(foreign.fence, result)))
        invented = await scene.store.finish(holder, reported(outcome(never, result)))

        assert (stolen.refused, invented.refused) == ((foreign.fence,), (never,))
        assert await scene.store.late_results(RunId(foreign.run)) == []
        assert "run.late_result" not in {each.kind for each in await scene.store.events(0, 100)}

    @every_way
    async def test_a_late_worker_cannot_finish_a_reclaimed_run(self, scene: Scene) -> None:
        late, work = await claimed(scene)
        await scene.store.end_session(late)
        await scene.release()
        winner = await scene.worker("winner")
        [again] = await scene.claim(winner)

        finished = await scene.finish(late, [work], message="me too")
        await scene.finish(winner, [again])

        [kept] = await scene.store.late_results(RunId(work.run))
        assert finished.refused == (work.fence,)
        assert (kept.attempt, kept.session, kept.message) == (1, late, "me too")
        assert (await scene.show(work.run)).worker == "winner"

    @pytest.mark.parametrize("message", ["", "with something to tell"])
    async def test_a_session_cannot_finish_its_own_new_attempt_with_an_old_report(
        self, scene: Scene, message: str
    ) -> None:
        worker, work = await claimed(scene)
        await scene.store.lose(worker, [work.fence])
        await scene.release()
        [again] = await scene.claim(worker)

        finished = await scene.finish(worker, [work], message=message)

        assert (again.attempt, finished.refused) == (2, (work.fence,))
        assert await scene.state(work.run) is RunState.CLAIMED

    async def test_a_fenced_report_leaves_its_neighbours_unharmed(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        stale, nowhere = Fence(work.run, 7), Fence("r_nope", 1)

        finished = await scene.finish(worker, [stale, nowhere, work])

        assert set(finished.refused) == {stale, nowhere}

    async def test_a_result_nobody_knows_counts_as_a_failure(self, scene: Scene) -> None:
        worker, work = await claimed(scene)

        finished = await scene.finish(worker, [work], "EVAPORATED")

        assert finished.refused == ()
        assert await scene.state(work.run) is RunState.FAILED

    async def test_times_lie_between_the_claim_and_now(self, scene: Scene) -> None:
        scene.advance(MINUTE)
        worker, work = await claimed(scene)
        before, after = scene.clock.now() - 10, scene.clock.now() + 10

        await scene.store.finish(worker, reported(outcome(work, at=before)))
        await scene.trigger((await scene.show(work.run)).job_id)
        [second] = await scene.claim(worker)
        await scene.store.finish(worker, reported(outcome(second, AttemptResult.FAILED, at=after)))

        for run in (await scene.show(work.run), await scene.show(second.run)):
            assert run.started_at == run.ended_at == scene.clock.instant

    @pytest.mark.parametrize("steps", [(), (StepOutcome("Sweep", "completed", exit_code=0),)])
    async def test_a_worker_whose_clock_is_behind_still_tells_how_long_it_took(
        self, scene: Scene, steps: tuple[StepOutcome, ...]
    ) -> None:
        worker, work = await claimed(scene)
        began = micros(scene.clock.instant) - 30_000
        scene.advance(SECOND)
        report = outcome(work, at=began, steps=steps)

        await scene.store.finish(worker, reported(structs.replace(report, ended_at=began + 20_000)))

        run = await scene.show(work.run)
        assert run.started_at is not None
        assert run.ended_at is not None
        assert run.ended_at - run.started_at == timedelta(milliseconds=20)

    async def test_a_new_attempt_tells_nothing_of_the_one_before(self, scene: Scene) -> None:
        worker, work = await claimed(scene, retry=Retry(attempts=2))
        told = {"exit_code": 3, "message": "boom", "output": b"x\n", "output_bytes": 2}
        await scene.finish(worker, [work], AttemptResult.FAILED, **told)
        await scene.release()
        await scene.claim(worker)

        first, second = await scene.store.attempts(RunId(work.run))

        assert (first.exit_code, first.message) == (3, "boom")
        assert (second.exit_code, second.message, second.result) == (None, "", None)
        assert await scene.store.inline_output(RunId(work.run), 1) == b"x\n"
        assert await scene.store.inline_output(RunId(work.run), 2) == b""

    async def test_a_report_may_ask_for_the_next_work_in_the_same_breath(
        self, scene: Scene
    ) -> None:
        runs = await scene.trigger(await scene.job(), 4)
        worker = await scene.worker(slots=2)
        works = await scene.claim(worker)

        reports = [outcome(work, at=scene.clock.now()) for work in works[:1]]
        finished = await scene.store.finish(worker, reported(*reports), claim=5)

        assert [work.run for work in finished.claimed.works()] == runs[2:3]
        assert (await scene.store.sessions(alive_only=True))[0].held == 2


class TestReport:
    async def test_it_may_have_ends_in_columns_and_outcomes(self, scene: Scene) -> None:
        runs = await scene.trigger(await scene.job(), 4)
        worker = await scene.worker()
        plain, rich, bad, _ = works = await scene.claim(worker)
        now = scene.clock.now()

        finished = await scene.store.finish(
            worker,
            Report(
                ends(outcome(plain, at=now, cpu_seconds=0.25)),
                (
                    outcome(rich, at=now, message="fine", outputs={"rows": 3}),
                    outcome(bad, AttemptResult.FAILED, at=now),
                ),
            ),
            claim=5,
        )

        completed = RunState.COMPLETED
        assert finished == Finished()
        assert await scene.states(runs) == [completed, completed, RunState.FAILED, RunState.CLAIMED]
        assert [(await scene.store.attempts(RunId(w.run)))[0].usage.cpu_seconds for w in works][
            :2
        ] == [0.25, 0.0]

    async def test_columns_have_outputs_where_there_are_any(self, scene: Scene) -> None:
        runs = await scene.trigger(await scene.job(), 3)
        worker = await scene.worker()
        works = await scene.claim(worker)
        made = [None, {"rows": 3}, None]

        now = scene.clock.now()
        outcomes = [outcome(w, at=now, outputs=o) for w, o in zip(works, made, strict=True)]
        await scene.store.finish(worker, Report(ends(*outcomes)))

        assert [(await scene.show(run)).outputs for run in runs] == made

    @pytest.mark.parametrize("is_first_in_columns", [True, False])
    async def test_of_two_ends_of_one_attempt_the_first_counts(
        self, scene: Scene, is_first_in_columns: bool
    ) -> None:
        worker, work = await claimed(scene)
        other = (await scene.trigger(await scene.job("other")))[0]
        [beside] = await scene.claim(worker)
        now = scene.clock.now()
        good, better = (outcome(work, at=now, outputs={"n": n}) for n in (1, 2))
        bad = outcome(work, AttemptResult.FAILED, at=now)
        worst = outcome(work, AttemptResult.FAILED, at=now, exit_code=9)

        await scene.store.finish(
            worker,
            Report(ends(outcome(beside, at=now), good, better), (bad,))
            if is_first_in_columns
            else Report(ends(outcome(beside, at=now)), (bad, worst)),
        )

        run = await scene.show(work.run)
        expected = (
            (RunState.COMPLETED, {"n": 1}) if is_first_in_columns else (RunState.FAILED, None)
        )
        assert (run.state, run.outputs, run.exit_code) == (*expected, None)
        assert await scene.state(other) is RunState.COMPLETED

    async def test_an_end_that_does_not_know_its_times_ends_now(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        now = scene.advance(SECOND)

        await scene.store.finish(worker, Report(ends(outcome(work, outputs={"n": 1}))))

        run = await scene.show(work.run)
        assert (run.state, run.started_at, run.ended_at) == (RunState.COMPLETED, None, now)
        assert run.outputs == {"n": 1}

    @pytest.mark.parametrize("message", ["", "with something to tell"])
    @pytest.mark.parametrize(
        ("started", "ended"), [(-3600, 3600), (-3600, 0), (0, 3600), (3600, 7200), (3600, -3600)]
    )
    async def test_no_end_lies_in_the_future_or_before_its_start(
        self, scene: Scene, started: int, ended: int, message: str
    ) -> None:
        worker, work = await claimed(scene)
        claimed_at = scene.clock.instant
        now = scene.advance(SECOND)
        at = scene.clock.now()
        told = structs.replace(
            outcome(work, at=at + started * 1_000_000, message=message),
            ended_at=at + ended * 1_000_000,
        )

        await scene.store.finish(worker, reported(told))

        run = await scene.show(work.run)
        assert run.started_at is not None
        assert run.ended_at is not None
        assert claimed_at <= run.started_at <= run.ended_at <= now

    async def test_a_word_of_the_worker_is_the_cause_of_a_failure(self, scene: Scene) -> None:
        worker, work = await claimed(scene)

        await scene.finish(worker, [work], AttemptResult.FAILED, signal=9, cause="oom")

        assert (await scene.show(work.run)).cause == "oom"

    @pytest.mark.parametrize(
        ("result", "cause", "told"),
        [
            (AttemptResult.TIMED_OUT, "oom", "timeout"),
            (AttemptResult.FAILED, "not\na word", "signal 9"),
            (AttemptResult.FAILED, "x" * 41, "signal 9"),
            (AttemptResult.CANCELLED, "oom", "cancelled"),
        ],
    )
    async def test_what_is_no_word_or_no_failure_has_the_cause_that_it_always_had(
        self, scene: Scene, result: AttemptResult, cause: str, told: str
    ) -> None:
        worker, work = await claimed(scene)

        await scene.finish(worker, [work], result, signal=9, cause=cause)

        assert (await scene.show(work.run)).cause == told


class TestForeignIncarnation:
    """The number of a fence has room for an incarnation of the store: today's is 0."""

    NUMBERS = pytest.mark.parametrize("number", [2**31, 2**32 + 1, 2**63 - 1])

    @NUMBERS
    @pytest.mark.parametrize("message", ["", "with something to tell"])
    async def test_a_report_is_refused(self, scene: Scene, number: int, message: str) -> None:
        worker, work = await claimed(scene)
        foreign = Fence(work.run, number)

        finished = await scene.finish(worker, [foreign, work], message=message)

        assert finished == Finished((foreign,))
        assert await scene.store.late_results(RunId(work.run)) == []
        assert await scene.state(work.run) is RunState.COMPLETED

    @NUMBERS
    async def test_a_start_is_refused(self, scene: Scene, number: int) -> None:
        worker, work = await claimed(scene)
        foreign = Fence(work.run, number)

        answer = await scene.start(worker, [foreign])

        assert answer.refused == (foreign,)
        assert await scene.state(work.run) is RunState.CLAIMED

    @NUMBERS
    async def test_its_output_and_progress_change_nothing(self, scene: Scene, number: int) -> None:
        worker, work = await claimed(scene)
        foreign = Fence(work.run, number)
        chunk = StoredChunk(ChunkMeta(0, 0, 1, 6, 0, 0), "key")

        refused = await scene.store.add_chunks(worker, [(foreign, chunk)])
        await scene.store.record_progress(worker, [Progress(work.run, number, 1.0, 2.0)])

        assert refused == (foreign,)
        assert await scene.store.chunks(RunId(work.run), 1) == []
        assert (await scene.show(work.run)).progress is None

    @NUMBERS
    async def test_nothing_is_lost(self, scene: Scene, number: int) -> None:
        worker, work = await claimed(scene)

        await scene.store.lose(worker, [Fence(work.run, number)])

        assert await scene.state(work.run) is RunState.CLAIMED


class TestRetry:
    async def test_a_failure_waits_out_its_back_off_and_is_tried_again(
        self, scene: Scene, published: list[Wakes]
    ) -> None:
        worker, work = await claimed(scene, retry=Retry(attempts=2, delay=MINUTE))

        await scene.finish(worker, [work], AttemptResult.FAILED, exit_code=2)

        run = await scene.show(work.run)
        assert (run.state, run.cause, run.failures) == (RunState.SCHEDULED, "exit 2", 1)
        assert run.eligible_at == scene.clock.instant + MINUTE
        assert published[-1].times
        assert await scene.release() == 0
        scene.advance(MINUTE)
        assert await scene.release() == 1
        assert [again.attempt for again in await scene.claim(worker)] == [2]

    async def test_the_last_failure_is_final(self, scene: Scene) -> None:
        worker, work = await claimed(scene, retry=Retry(attempts=2))
        await scene.finish(worker, [work], AttemptResult.FAILED)
        await scene.release()
        [again] = await scene.claim(worker)

        await scene.finish(worker, [again], AttemptResult.FAILED, signal=9)

        run = await scene.show(work.run)
        assert (run.state, run.cause, run.failures) == (RunState.FAILED, "signal 9", 2)

    async def test_a_timeout_is_told_apart(self, scene: Scene) -> None:
        worker, work = await claimed(scene)

        await scene.finish(worker, [work], AttemptResult.TIMED_OUT)

        run = await scene.show(work.run)
        assert (run.state, run.cause) == (RunState.TIMED_OUT, "timeout")

    async def test_no_retry_that_could_only_start_after_the_deadline(self, scene: Scene) -> None:
        worker, work = await claimed(
            scene, retry=Retry(attempts=9, delay=MINUTE), deadline=timedelta(seconds=30)
        )

        await scene.finish(worker, [work], AttemptResult.FAILED)

        assert await scene.state(work.run) is RunState.FAILED

    async def test_attempts_keep_their_own_story(self, scene: Scene) -> None:
        worker, work = await claimed(scene, retry=Retry(attempts=2))
        await scene.finish(worker, [work], AttemptResult.FAILED, exit_code=1)
        await scene.release()
        [again] = await scene.claim(worker)
        await scene.finish(worker, [again], exit_code=0)

        attempts = await scene.store.attempts(RunId(work.run))

        assert [(a.number, a.result, a.exit_code) for a in attempts] == [
            (1, AttemptResult.FAILED, 1),
            (2, AttemptResult.COMPLETED, 0),
        ]


class TestLoss:
    async def test_a_lost_worker_means_a_new_attempt(
        self, scene: Scene, published: list[Wakes]
    ) -> None:
        worker, work = await claimed(scene)
        await scene.start(worker, [work])

        await scene.vanish(worker)
        wakes = published[-1]

        run = await scene.show(work.run)
        assert (run.state, run.cause) == (RunState.SCHEDULED, "lost")
        assert (run.losses, run.failures, wakes.times) == (1, 0, True)
        assert await scene.release() == 1

    async def test_an_interrupted_attempt_is_followed_by_another_and_blames_nobody(
        self, scene: Scene
    ) -> None:
        worker, work = await claimed(scene, max_losses=0)

        await scene.finish(worker, [work], AttemptResult.INTERRUPTED)
        await scene.release()

        run = await scene.show(work.run)
        assert (run.state, run.losses, run.failures) == (RunState.QUEUED, 0, 0)

    async def test_a_run_that_loses_too_many_workers_is_quarantined(self, scene: Scene) -> None:
        [run_id] = await scene.trigger(await scene.job(max_losses=2))

        for _ in range(3):
            worker = await scene.worker()
            await scene.claim(worker)
            await scene.vanish(worker)
            await scene.release()

        run = await scene.show(run_id)
        assert (run.state, run.cause, run.attempt) == (RunState.FAILED, "poison", 3)

    async def test_a_run_is_not_blamed_for_what_never_reached_its_worker(
        self, scene: Scene
    ) -> None:
        """A server that dies between a claim and its dispatch, time and again."""
        [run_id] = await scene.trigger(await scene.job(max_losses=0))
        worker = await scene.worker()
        for _ in range(3):
            [work] = await scene.claim(worker)
            await scene.store.lose(worker, [work.fence])
            await scene.release()

        run = await scene.show(run_id)
        assert (run.state, run.attempt, run.losses) == (RunState.QUEUED, 3, 0)

    async def test_a_run_whose_end_no_worker_can_report_is_quarantined(self, scene: Scene) -> None:
        [run_id] = await scene.trigger(await scene.job(max_losses=2))
        worker = await scene.worker()
        for _ in range(3):
            [work] = await scene.claim(worker)
            await scene.store.lose(worker, [work.fence], is_untold=True)
            await scene.release()

        run = await scene.show(run_id)
        assert (run.state, run.cause, run.losses) == (RunState.FAILED, "poison", 3)

    async def test_a_run_is_not_blamed_for_a_worker_that_leaves(self, scene: Scene) -> None:
        worker, work = await claimed(scene, max_losses=0)

        await scene.store.end_session(worker)

        run = await scene.show(work.run)
        assert (run.state, run.losses) == (RunState.SCHEDULED, 0)

    async def test_at_most_once_becomes_unknown_once_it_had_begun(self, scene: Scene) -> None:
        _, work = await unknown_run(scene)

        run = await scene.show(work.run)
        assert (run.state, run.cause, run.ended_at) == (RunState.UNKNOWN, "lost", None)
        assert await scene.release() == 0

    async def test_at_most_once_is_tried_again_if_it_had_not_begun(self, scene: Scene) -> None:
        worker, work = await claimed(scene, delivery=ONCE)

        await scene.store.end_session(worker)

        assert await scene.state(work.run) is RunState.SCHEDULED

    async def test_the_report_of_a_lost_attempt_is_kept_aside(self, scene: Scene) -> None:
        worker, work = await unknown_run(scene)

        finished = await scene.finish(worker, [work])

        assert finished.refused == (work.fence,)
        assert await scene.state(work.run) is RunState.UNKNOWN
        assert len(await scene.store.late_results(RunId(work.run))) == 1

    async def test_what_a_live_worker_does_not_know_is_lost(self, scene: Scene) -> None:
        await scene.trigger(await scene.job(), 2)
        worker = await scene.worker()
        known, unknown = await scene.claim(worker)

        await scene.store.lose(worker, [unknown.fence, Fence(known.run, 9), Fence("r_nope", 1)])

        assert await scene.states([known.run, unknown.run]) == [
            RunState.CLAIMED,
            RunState.SCHEDULED,
        ]


class TestResolve:
    @pytest.mark.parametrize(("state", "failures"), [(RunState.COMPLETED, 0), (RunState.FAILED, 1)])
    async def test_a_person_ends_the_doubt(
        self, scene: Scene, state: RunState, failures: int
    ) -> None:
        _, work = await unknown_run(scene)

        await scene.store.resolve(RunId(work.run), state, actor="person")

        run = await scene.show(work.run)
        assert (run.state, run.failures, run.ended_at) == (state, failures, scene.clock.instant)

    async def test_a_person_may_have_it_tried_again(
        self, scene: Scene, published: list[Wakes]
    ) -> None:
        _, work = await unknown_run(scene)

        await scene.store.resolve(RunId(work.run), RunState.SCHEDULED, actor="person")
        wakes = published[-1]
        await scene.release()

        [again] = await scene.claim(await scene.worker("next"))
        assert (again.attempt, wakes.times) == (2, True)

    async def test_trying_again_forgets_an_older_cancel(self, scene: Scene) -> None:
        worker, work = await claimed(scene, delivery=ONCE)
        await scene.start(worker, [work])
        await scene.store.cancel([RunId(work.run)], actor="user")
        await scene.store.end_session(worker)

        await scene.store.resolve(RunId(work.run), RunState.SCHEDULED, actor="person")
        await scene.release()
        fresh = await scene.worker("next")
        [again] = await scene.claim(fresh)

        assert (await scene.start(fresh, [again])).granted == (again.fence,)

    async def test_only_what_is_unknown_is_resolved(self, scene: Scene) -> None:
        _, work = await claimed(scene)

        with pytest.raises(Conflict):
            await scene.store.resolve(RunId(work.run), RunState.FAILED, actor="person")

    async def test_what_does_not_exist_is_not_found(self, scene: Scene) -> None:
        with pytest.raises(NotFound):
            await scene.store.resolve(RunId("r_nope"), RunState.FAILED, actor="person")

    async def test_a_run_is_resolved_only_as_the_table_allows(self, scene: Scene) -> None:
        _, work = await unknown_run(scene)

        with pytest.raises(Invalid):
            await scene.store.resolve(RunId(work.run), RunState.SKIPPED, actor="person")
