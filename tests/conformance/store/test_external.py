"""Work of other systems: attempts without a worker, what is reported of them, and silence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.external import (
    EXTERNAL_SESSION,
    Judgement,
    Notice,
    Progress,
    ReportState,
    StatusReport,
)
from rota.domain.ids import RunId
from rota.domain.keys import Resource
from rota.domain.spec import EXTERNAL_POOL, Delivery, JobType, Retry
from rota.domain.states import RunState
from rota.ports.external import Announcement, Reporting, ReportTaken, Sent
from rota.ports.records import StoredChunk
from rota.ports.work import ChunkMeta
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
EXTERNAL: dict[str, Any] = {
    "kind": JobType.EXTERNAL,
    "pool": EXTERNAL_POOL,
    "timeout": HOUR,
    "tells": (Notice.ANNOUNCE, Notice.CANCEL),
}


async def begun(scene: Scene, **rules: Any) -> RunId:
    [run] = await scene.trigger(await scene.job(**(EXTERNAL | rules)))
    assert await scene.store.begin_external(100) == 1
    return run


def said(state: str, number: int | None = None, **fields: Any) -> StatusReport:
    return StatusReport(ReportState(state), number, **fields)


async def report(scene: Scene, run: RunId, status: StatusReport, **fields: Any) -> ReportTaken:
    return await scene.store.report_external(Reporting(run, status, "ci", **fields))


async def due(scene: Scene, count: int = 10) -> list[Announcement]:
    digests = [f"digest-{number}-{scene.clock.now()}" for number in range(count)]
    leased = await scene.store.lease_announcements(digests, MINUTE)
    return [each for each, _ in leased]


class TestLife:
    async def test_a_run_goes_on_without_any_worker(self, scene: Scene) -> None:
        run = await begun(scene)

        found = await scene.show(run)
        assert (found.state, found.attempt, found.session) == (
            RunState.PROCESSING,
            1,
            EXTERNAL_SESSION,
        )

    async def test_nobody_sees_its_session_among_workers(self, scene: Scene) -> None:
        await begun(scene)

        assert await scene.store.sessions(alive_only=False) == []
        assert await scene.store.heartbeats() == []
        assert [each.name for each in await scene.store.pools()] == []

    async def test_a_report_of_its_end_ends_it(self, scene: Scene) -> None:
        run = await begun(scene)

        taken = await report(scene, run, said("completed", 1, outputs={"id": 7}))

        found = await scene.show(run)
        assert taken.judgement is Judgement.ACCEPTED
        assert (found.state, found.outputs) == (RunState.COMPLETED, {"id": 7})

    async def test_a_failure_is_tried_again_as_the_job_says(self, scene: Scene) -> None:
        run = await begun(scene, retry=Retry(attempts=2))

        await report(scene, run, said("failed", 1, message="no disk"))
        await scene.release()
        again = await scene.store.begin_external(100)
        await report(scene, run, said("failed", 1, attempt=2, message="no disk"))

        found = await scene.show(run)
        assert again == 1
        assert (found.state, found.attempt, found.message) == (RunState.FAILED, 2, "no disk")

    async def test_what_runs_share_is_held_while_it_goes_on(self, scene: Scene) -> None:
        await scene.store.save_declarations([Resource("default", "seat")], actor="a")
        job = await scene.job(**EXTERNAL, uses={"seat": 1})
        first, second = await scene.trigger(job, 2)
        assert await scene.store.begin_external(100) == 1
        assert await scene.store.begin_external(100) == 0

        await report(scene, first, said("completed"))
        await scene.store.release_keys(100)

        assert await scene.store.begin_external(100) == 1
        assert await scene.state(second) is RunState.PROCESSING

    async def test_at_most_so_many_at_once_as_the_job_says(self, scene: Scene) -> None:
        job = await scene.job(**EXTERNAL, max_concurrency=1)
        first, second = await scene.trigger(job, 2)
        assert await scene.store.begin_external(100) == 1

        await report(scene, first, said("completed"))

        assert await scene.store.begin_external(100) == 1
        assert await scene.state(second) is RunState.PROCESSING


class TestReports:
    async def test_the_same_number_again_is_the_same_report(self, scene: Scene) -> None:
        run = await begun(scene)
        end = said("completed", 2, outputs={"id": 7})

        first, again = [await report(scene, run, end) for _ in range(2)]

        assert (first.judgement, again.judgement) == (Judgement.ACCEPTED, Judgement.REPEATED)
        assert await scene.store.late_results(run) == []

    async def test_the_same_number_with_something_else_is_refused(self, scene: Scene) -> None:
        run = await begun(scene)
        await report(scene, run, said("processing", 2))

        taken = await report(scene, run, said("completed", 2))

        assert taken.judgement is Judgement.DIFFERENT
        assert await scene.state(run) is RunState.PROCESSING

    async def test_an_older_report_changes_nothing(self, scene: Scene) -> None:
        run = await begun(scene)
        await report(scene, run, said("processing", 3))

        taken = await report(scene, run, said("failed", 2))

        assert (taken.judgement, taken.number) == (Judgement.STALE, 3)
        assert await scene.state(run) is RunState.PROCESSING

    async def test_a_report_after_the_end_is_kept_aside(self, scene: Scene) -> None:
        run = await begun(scene)
        await report(scene, run, said("completed", 1))

        taken = await report(scene, run, said("failed", 2, message="or did it?"))

        [late] = await scene.store.late_results(run)
        assert taken.judgement is Judgement.LATE
        assert (late.result, late.message) == ("FAILED", "or did it?")
        assert await scene.state(run) is RunState.COMPLETED

    async def test_a_report_of_an_older_attempt_is_kept_aside(self, scene: Scene) -> None:
        run = await begun(scene, heartbeat=MINUTE)
        scene.advance(2 * MINUTE)
        await scene.store.end_silent(100)
        await scene.release()
        assert await scene.store.begin_external(100) == 1

        taken = await report(scene, run, said("completed", 9, attempt=1))

        assert (taken.judgement, taken.attempt) == (Judgement.LATE, 2)
        assert [late.attempt for late in await scene.store.late_results(run)] == [1]
        assert await scene.state(run) is RunState.PROCESSING

    async def test_a_run_that_waits_has_nothing_to_report(self, scene: Scene) -> None:
        [run] = await scene.trigger(await scene.job(**EXTERNAL))

        taken = await report(scene, run, said("completed"))

        assert (taken.judgement, taken.state) == (Judgement.LATE, RunState.QUEUED)
        assert await scene.state(run) is RunState.QUEUED

    async def test_nobody_reports_on_what_a_worker_does(self, scene: Scene) -> None:
        worker = await scene.worker()
        [run] = await scene.trigger(await scene.job())
        await scene.start(worker, await scene.claim(worker))

        taken = await report(scene, run, said("completed"))

        assert (taken.judgement, taken.is_external) == (Judgement.LATE, False)
        assert await scene.state(run) is RunState.PROCESSING

    async def test_it_tells_how_far_it_is(self, scene: Scene) -> None:
        run = await begun(scene)

        await report(scene, run, said("processing", 1, progress=Progress(3, 4), message="testing"))

        found = await scene.show(run)
        assert found.progress == {"done": 3, "total": 4, "message": "testing"}

    async def test_a_message_alone_leaves_it_as_far_as_it_was(self, scene: Scene) -> None:
        run = await begun(scene)
        await report(scene, run, said("processing", 1, progress=Progress(3, 4), message="testing"))

        await report(scene, run, said("processing", 2, message="still testing"))

        found = await scene.show(run)
        assert found.progress == {"done": 3, "total": 4, "message": "still testing"}

    async def test_what_it_prints_is_output_of_the_run(self, scene: Scene) -> None:
        run = await begun(scene)
        for number in (1, 2):
            chunk = StoredChunk(ChunkMeta(0, 0, 2, 10, 1_000, 1_000), f"chunk-{number}")
            state = "processing" if number == 1 else "completed"
            await report(scene, run, said(state, number), printed=chunk)

        chunks = await scene.store.chunks(run, 1)
        [attempt] = await scene.store.attempts(run)
        assert [(c.key, c.meta.number, c.meta.first_line) for c in chunks] == [
            ("chunk-1", 0, 0),
            ("chunk-2", 1, 2),
        ]
        assert (attempt.output.state, attempt.output.lines, attempt.output.bytes) == (
            "stored",
            4,
            20,
        )

    async def test_more_output_than_the_job_keeps_is_cut(self, scene: Scene) -> None:
        run = await begun(scene, log_limit=15)
        for number in (1, 2):
            chunk = StoredChunk(ChunkMeta(0, 0, 2, 10, 1_000, 1_000), f"chunk-{number}")
            await report(scene, run, said("processing", number), printed=chunk)
        await report(scene, run, said("completed", 3))

        [attempt] = await scene.store.attempts(run)
        assert (attempt.output.lines, attempt.output.truncated) == (2, True)

    async def test_the_history_says_who_reported(self, scene: Scene) -> None:
        run = await begun(scene)

        await report(scene, run, said("processing", 1))
        await report(scene, run, said("completed", 2))

        events = await scene.store.events(0, 100, ids=[run])
        assert [(e.kind, e.actor) for e in events if e.actor == "ci"] == [
            ("run.reported", "ci"),
            ("run.finished", "ci"),
        ]


class TestSilence:
    async def test_silence_is_a_loss_and_the_next_attempt_follows(self, scene: Scene) -> None:
        run = await begun(scene, heartbeat=MINUTE)

        scene.advance(MINUTE + SECOND)
        assert await scene.store.end_silent(100) == 1

        found = await scene.show(run)
        assert (found.state, found.cause, found.losses) == (RunState.SCHEDULED, "silent", 1)

    async def test_each_report_prolongs_it(self, scene: Scene) -> None:
        run = await begun(scene, heartbeat=MINUTE)
        for number in range(1, 4):
            scene.advance(40 * SECOND)
            await report(scene, run, said("processing", number))
            assert await scene.store.end_silent(100) == 0

        assert await scene.state(run) is RunState.PROCESSING

    async def test_runs_that_are_silent_again_and_again_fail(self, scene: Scene) -> None:
        run = await begun(scene, heartbeat=MINUTE, max_losses=1)
        scene.advance(2 * MINUTE)
        await scene.store.end_silent(100)
        await scene.release()
        assert await scene.store.begin_external(100) == 1
        scene.advance(2 * MINUTE)

        await scene.store.end_silent(100)

        found = await scene.show(run)
        assert (found.state, found.cause) == (RunState.FAILED, "silent")

    async def test_a_silent_one_goes_on_beside_others(self, scene: Scene) -> None:
        """It has killed no worker that it would have to be kept away from."""
        job = await scene.job(**EXTERNAL, heartbeat=MINUTE, max_losses=1)
        silent, other = await scene.trigger(job, 2)
        await scene.store.begin_external(100)
        for number in (1, 2):
            scene.advance(40 * SECOND)
            await report(scene, other, said("processing", number))
            await scene.store.end_silent(100)
        await scene.release()

        assert await scene.store.begin_external(100) == 1
        assert (await scene.show(silent)).attempt == 2

    async def test_nobody_knows_what_became_of_what_must_not_be_done_twice(
        self, scene: Scene
    ) -> None:
        run = await begun(scene, heartbeat=MINUTE, delivery=Delivery.AT_MOST_ONCE)

        scene.advance(2 * MINUTE)
        await scene.store.end_silent(100)

        assert await scene.state(run) is RunState.UNKNOWN

    async def test_the_timeout_ends_it_whatever_is_reported(self, scene: Scene) -> None:
        run = await begun(scene, heartbeat=MINUTE)
        for _ in range(61):
            scene.advance(MINUTE)
            await report(scene, run, said("processing"))

        assert await scene.store.end_silent(100) == 1
        assert await scene.state(run) is RunState.TIMED_OUT

    async def test_a_timeout_of_what_must_not_be_done_twice_is_a_question(
        self, scene: Scene
    ) -> None:
        run = await begun(scene, delivery=Delivery.AT_MOST_ONCE)

        scene.advance(2 * HOUR)
        await scene.store.end_silent(100)

        assert await scene.state(run) is RunState.UNKNOWN

    async def test_any_server_finds_out(self, scene: Scene) -> None:
        await begun(scene, heartbeat=MINUTE)
        assert not (await scene.store.external_due()).silent

        scene.advance(2 * MINUTE)

        assert (await scene.store.external_due()).silent


class TestCancel:
    async def test_it_ends_and_the_other_system_is_told(self, scene: Scene) -> None:
        run = await begun(scene)
        [announced] = await due(scene)
        await scene.store.settle_announcements([Sent(announced.id)])

        await scene.store.cancel([run], actor="ann")
        assert await scene.store.end_silent(100) == 1

        [told] = await due(scene)
        assert await scene.state(run) is RunState.CANCELLED
        assert (told.kind, told.run, told.id) == (Notice.CANCEL, run, f"{run}.1.cancel")

    async def test_a_report_that_it_goes_on_does_not_put_that_off(self, scene: Scene) -> None:
        run = await begun(scene, heartbeat=MINUTE)
        await scene.store.cancel([run], actor="ann")

        await report(scene, run, said("processing", 1))

        assert await scene.store.end_silent(100) == 1
        assert await scene.state(run) is RunState.CANCELLED

    async def test_what_ended_before_is_not_cancelled(self, scene: Scene) -> None:
        run = await begun(scene)
        await scene.store.cancel([run], actor="ann")

        await report(scene, run, said("completed", 1))

        assert await scene.store.end_silent(100) == 0
        assert await scene.state(run) is RunState.COMPLETED


class TestAnnouncements:
    async def test_an_attempt_that_begins_is_to_be_announced(self, scene: Scene) -> None:
        run = await begun(scene)

        [announced] = await due(scene)

        assert (announced.kind, announced.run, announced.attempt, announced.tries) == (
            Notice.ANNOUNCE,
            run,
            1,
            1,
        )
        assert announced.ends_at == await scene.store.now() + HOUR

    async def test_one_server_sends_it(self, scene: Scene) -> None:
        await begun(scene)

        assert len(await due(scene)) == 1
        assert await due(scene) == []

    async def test_another_server_sends_it_once_the_first_is_gone(self, scene: Scene) -> None:
        await begun(scene)
        [first] = await due(scene)

        scene.advance(2 * MINUTE)
        [again] = await due(scene)

        assert (again.id, again.tries) == (first.id, 2)

    async def test_what_was_in_vain_is_tried_again_and_told(self, scene: Scene) -> None:
        run = await begun(scene)
        [announced] = await due(scene)
        later = await scene.store.now() + 10 * SECOND
        await scene.store.settle_announcements([Sent(announced.id, "answered 500", later)])

        found = await scene.store.external_attempt(run, 1)
        assert found is not None
        [told] = found.told
        assert (told.error, told.tries, told.sent_at) == ("answered 500", 1, None)
        assert await due(scene) == []
        scene.advance(11 * SECOND)
        assert len(await due(scene)) == 1

    async def test_what_was_answered_is_not_sent_again(self, scene: Scene) -> None:
        await begun(scene)
        [announced] = await due(scene)

        await scene.store.settle_announcements([Sent(announced.id)])

        scene.advance(10 * MINUTE)
        assert await due(scene) == []

    async def test_attempts_that_are_over_are_not_announced(self, scene: Scene) -> None:
        run = await begun(scene)
        await report(scene, run, said("completed"))

        assert await due(scene) == []
        assert not (await scene.store.external_due()).announcements

    async def test_jobs_without_such_a_call_announce_nothing(self, scene: Scene) -> None:
        await begun(scene, tells=())

        assert await due(scene) == []

    async def test_a_token_is_for_one_attempt(self, scene: Scene) -> None:
        run = await begun(scene)
        await scene.store.lease_announcements(["digest"], MINUTE)

        token = await scene.store.report_token("digest")

        assert token is not None
        assert (token.run, token.attempt, token.project) == (run, 1, "default")
        assert await scene.store.report_token("another") is None

    async def test_tokens_are_forgotten_long_after_the_end(self, scene: Scene) -> None:
        run = await begun(scene)
        await scene.store.lease_announcements(["digest"], MINUTE)
        await report(scene, run, said("completed"))
        assert await scene.store.forget_report_tokens(10) == 0

        scene.advance(timedelta(days=91))

        assert await scene.store.forget_report_tokens(10) == 1
