"""Notes of attempts that go on: who may tell them, who reads them, and what becomes of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import RunId, SessionId
from rota.domain.run import AttemptResult
from rota.domain.spec import Retry
from rota.ports.work import RUNNING, Fence, StepNote, StepOutcome, Work
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio

BUILD = StepOutcome("build", "completed", seconds=1.5, started_at=1_000, lines=3)
TEST = StepOutcome("test", RUNNING, started_at=2_000, first_line=3)


def note(work: Work | Fence, at: int = 10, *steps: StepOutcome, lines: int = 0) -> StepNote:
    return StepNote(work.run, work.number, at, 0, steps, lines, 10 * lines, f"line {lines}")


async def claimed(scene: Scene, **rules: Any) -> tuple[SessionId, Work]:
    worker = await scene.worker()
    await scene.trigger(await scene.job(**rules))
    [work] = await scene.claim(worker)
    return worker, work


async def test_a_note_is_read_as_it_was_told(scene: Scene) -> None:
    worker, work = await claimed(scene)

    told = await scene.store.tell_notes(worker, [note(work, 10, BUILD, TEST, lines=4)])

    [found] = (await scene.store.notes([work.run])).values()
    assert told == {work.fence}
    assert (found.run, found.attempt, found.output_lines, found.output_bytes) == (
        work.run,
        1,
        4,
        40,
    )
    assert found.last_line == "line 4"
    assert [(step.name, step.is_running, step.first_line) for step in found.steps] == [
        ("build", False, 0),
        ("test", True, 3),
    ]
    assert found.current == 1


async def test_the_latest_note_replaces_the_others_in_whatever_order_they_come(
    scene: Scene,
) -> None:
    worker, work = await claimed(scene)

    for at, lines in ((10, 1), (30, 3), (20, 2)):
        await scene.store.tell_notes(worker, [note(work, at, lines=lines)])

    assert (await scene.store.notes([work.run]))[RunId(work.run)].output_lines == 3


async def test_of_two_notes_in_one_request_the_last_one_counts(scene: Scene) -> None:
    worker, work = await claimed(scene)

    await scene.store.tell_notes(worker, [note(work, 10, lines=1), note(work, 11, lines=2)])

    assert (await scene.store.notes([work.run]))[RunId(work.run)].output_lines == 2


async def test_nobody_tells_of_attempts_of_others(scene: Scene) -> None:
    _, work = await claimed(scene)
    other = await scene.worker("w2")

    assert await scene.store.tell_notes(other, [note(work)]) == frozenset()
    assert await scene.store.notes([work.run]) == {}


async def test_nobody_tells_of_attempts_that_are_over_or_were_never_made(scene: Scene) -> None:
    worker, work = await claimed(scene)
    await scene.finish(worker, [work])
    unknown = Fence("r_000000000000000000000000", 1)

    assert await scene.store.tell_notes(worker, [note(work), note(unknown)]) == frozenset()


async def test_the_note_of_an_attempt_is_not_that_of_the_next(scene: Scene) -> None:
    worker, work = await claimed(scene, retry=Retry(attempts=2, delay=timedelta(seconds=1)))
    await scene.store.tell_notes(worker, [note(work, 10, TEST)])

    await scene.finish(worker, [work], AttemptResult.FAILED)
    assert await scene.store.notes([work.run]) == {}
    scene.advance(MINUTE)
    await scene.store.release_eligible(10)
    [again] = await scene.claim(worker)

    assert again.run == work.run
    assert await scene.store.notes([work.run]) == {}
    await scene.store.tell_notes(worker, [note(again, 5, lines=1)])
    assert (await scene.store.notes([work.run]))[RunId(work.run)].attempt == 2


async def test_notes_of_attempts_that_are_over_are_deleted_and_no_others(scene: Scene) -> None:
    worker = await scene.worker(slots=3)
    await scene.trigger(await scene.job(), 3)
    works = await scene.claim(worker)
    await scene.store.tell_notes(worker, [note(work) for work in works])
    await scene.finish(worker, works[:2])

    assert await scene.store.forget_notes(1) == 1
    assert await scene.store.forget_notes(10) == 1
    assert await scene.store.forget_notes(10) == 0
    assert set(await scene.store.notes([work.run for work in works])) == {works[2].run}


async def test_a_lost_attempt_keeps_the_steps_that_its_worker_told(scene: Scene) -> None:
    worker, work = await claimed(scene)
    await scene.store.tell_notes(worker, [note(work, 10, BUILD, TEST)])

    await scene.store.lose(worker, [work.fence])

    [attempt] = await scene.store.attempts(RunId(work.run))
    assert attempt.result is AttemptResult.LOST
    assert [(step.name, step.result) for step in attempt.steps] == [
        ("build", "completed"),
        ("test", "lost"),
    ]


async def test_the_steps_of_an_end_are_those_that_it_reports(scene: Scene) -> None:
    worker, work = await claimed(scene)
    await scene.store.tell_notes(worker, [note(work, 10, BUILD, TEST)])

    await scene.finish(worker, [work], AttemptResult.FAILED, steps=(BUILD,))

    [attempt] = await scene.store.attempts(RunId(work.run))
    assert [step.name for step in attempt.steps] == ["build"]
    assert attempt.steps[0].started_at is not None
