from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import RunId, SessionId
from rota.domain.run import AttemptResult, OutputState
from rota.domain.spec import Retry
from rota.domain.states import RunState
from rota.ports.records import ArrivedOutput, StoredChunk
from rota.ports.work import ChunkMeta, Fence, Progress, Work
from testkit.builders import LEASE, Scene

pytestmark = pytest.mark.anyio


PRINTED: dict[str, Any] = {"output_bytes": 200, "output_lines": 20}  # two chunks


def chunk(number: int, *, lines: int = 10) -> StoredChunk:
    return StoredChunk(ChunkMeta(number, number * lines, lines, 100, 1, 2), f"key-{number}")


async def claimed(scene: Scene, **rules: Any) -> tuple[SessionId, Work]:
    await scene.trigger(await scene.job(**rules))
    worker = await scene.worker()
    [work] = await scene.claim(worker)
    return worker, work


async def test_chunks_are_found_in_order(scene: Scene) -> None:
    worker, work = await claimed(scene)

    refused = await scene.store.add_chunks(worker, [(work.fence, chunk(1)), (work.fence, chunk(0))])

    assert refused == ()
    assert await scene.store.chunks(RunId(work.run), 1) == [chunk(0), chunk(1)]


async def test_a_chunk_sent_twice_is_kept_once(scene: Scene) -> None:
    worker, work = await claimed(scene)

    for _ in range(2):
        await scene.store.add_chunks(worker, [(work.fence, chunk(0))])

    assert len(await scene.store.chunks(RunId(work.run), 1)) == 1


@pytest.mark.parametrize("is_held", [False, True])
async def test_numbers_beyond_measure_keep_no_session_from_its_end(
    scene: Scene, is_held: bool
) -> None:
    worker, work = await claimed(scene)
    huge = 2**63 - 1
    chunks = [StoredChunk(ChunkMeta(n, huge, huge, huge, 1, 2), f"key-{n}") for n in range(3)]
    if not is_held:
        await scene.finish(worker, [work], output_bytes=huge, output_lines=huge)

    await scene.store.add_chunks(worker, [(work.fence, chunk) for chunk in chunks])
    await scene.store.end_session(worker)

    [attempt, *_] = await scene.store.attempts(RunId(work.run))
    assert attempt.output.state is OutputState.TORN


async def test_chunks_of_what_a_session_does_not_hold_are_refused(scene: Scene) -> None:
    worker, work = await claimed(scene)
    thief = await scene.worker("thief")
    stale = Fence(work.run, 2)

    by_thief = await scene.store.add_chunks(thief, [(work.fence, chunk(0))])
    by_attempt = await scene.store.add_chunks(worker, [(stale, chunk(0)), (work.fence, chunk(1))])

    assert (by_thief, by_attempt) == ((work.fence,), (stale,))
    assert await scene.store.chunks(RunId(work.run), 1) == [chunk(1)]


async def test_chunks_after_the_end_are_refused(scene: Scene) -> None:
    worker, work = await claimed(scene)
    await scene.finish(worker, [work])

    assert await scene.store.add_chunks(worker, [(work.fence, chunk(0))]) == (work.fence,)


async def test_the_output_of_a_lost_attempt_is_torn(scene: Scene) -> None:
    worker, work = await claimed(scene)
    await scene.store.add_chunks(worker, [(work.fence, chunk(0)), (work.fence, chunk(1))])

    await scene.store.end_session(worker)

    [attempt] = await scene.store.attempts(RunId(work.run))
    assert attempt.output.state is OutputState.TORN
    assert (attempt.output.bytes, attempt.output.lines) == (200, 20)


class TestOutputLeftOnTheWorker:
    """Attempts end before all they printed has arrived."""

    async def summary(self, scene: Scene, work: Work) -> tuple[OutputState, int, bool]:
        attempts = await scene.store.attempts(RunId(work.run))
        output = attempts[work.attempt - 1].output
        return output.state, output.lines, output.truncated

    async def test_it_is_pending_until_its_last_line_has_arrived(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.finish(worker, [work], **PRINTED)
        states = [await self.summary(scene, work)]

        for number in range(2):
            assert await scene.store.add_chunks(worker, [(work.fence, chunk(number))]) == ()
            states.append(await self.summary(scene, work))

        assert [state for state, _, _ in states] == ["pending", "pending", "stored"]
        assert await scene.state(work.run) is RunState.COMPLETED
        assert states[-1] == (OutputState.STORED, 20, False)

    async def test_what_has_arrived_before_the_end_is_stored(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.store.add_chunks(worker, [(work.fence, chunk(0)), (work.fence, chunk(1))])

        await scene.finish(worker, [work], **PRINTED)

        assert await self.summary(scene, work) == (OutputState.STORED, 20, False)

    async def test_nothing_more_is_taken_once_it_is_stored(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.finish(worker, [work], **PRINTED)
        await scene.store.add_chunks(worker, [(work.fence, chunk(0)), (work.fence, chunk(1))])

        assert await scene.store.add_chunks(worker, [(work.fence, chunk(2))]) == (work.fence,)

    async def test_only_the_session_that_ran_it_may_send_it(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        thief = await scene.worker("thief")
        await scene.finish(worker, [work], **PRINTED)

        assert await scene.store.add_chunks(thief, [(work.fence, chunk(1))]) == (work.fence,)
        assert (await self.summary(scene, work))[0] is OutputState.PENDING

    async def test_a_new_attempt_leaves_the_output_of_the_last_one_open(self, scene: Scene) -> None:
        worker, first = await claimed(scene, retry=Retry(attempts=2))
        await scene.finish(worker, [first], AttemptResult.FAILED, **PRINTED)
        before_retry = await scene.store.add_chunks(worker, [(first.fence, chunk(0))])
        scene.advance(timedelta(hours=1))
        await scene.release()
        other = await scene.worker("other")
        [second] = await scene.claim(other)

        refused = await scene.store.add_chunks(
            worker, [(first.fence, chunk(1)), (second.fence, chunk(0))]
        )

        assert (before_retry, refused) == ((), (second.fence,))
        assert await self.summary(scene, first) == (OutputState.STORED, 20, False)
        assert len(await scene.store.chunks(RunId(first.run), 1)) == 2
        assert await scene.store.chunks(RunId(first.run), 2) == []

    @pytest.mark.parametrize("is_retried", [False, True])
    async def test_it_is_torn_when_the_worker_leaves(self, scene: Scene, is_retried: bool) -> None:
        worker, work = await claimed(scene, retry=Retry(attempts=1 + is_retried))
        await scene.finish(worker, [work], AttemptResult.FAILED, **PRINTED)
        await scene.store.add_chunks(worker, [(work.fence, chunk(0))])

        await scene.store.end_session(worker)

        assert await self.summary(scene, work) == (OutputState.TORN, 10, False)
        assert await scene.store.add_chunks(worker, [(work.fence, chunk(1))]) == (work.fence,)

    async def test_it_is_torn_when_the_worker_vanishes(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.finish(worker, [work], **PRINTED)
        [session] = await scene.store.sessions(alive_only=True)

        scene.advance(2 * LEASE)
        await scene.store.reap({worker: session.beats})

        assert await self.summary(scene, work) == (OutputState.TORN, 0, False)

    async def test_lines_that_the_worker_cut_count_as_arrived(self, scene: Scene) -> None:
        worker, work = await claimed(scene)
        await scene.finish(worker, [work], **PRINTED)
        mark = StoredChunk(ChunkMeta(1, 19, 1, bytes=30, first_at=1, last_at=2), "key-1")

        await scene.store.add_chunks(worker, [(work.fence, mark)])

        assert await self.summary(scene, work) == (OutputState.STORED, 1, True)


async def test_progress_is_kept_while_the_attempt_is_held(scene: Scene) -> None:
    worker, work = await claimed(scene)
    progress = Progress(work.run, work.number, 3, 10, "copying")

    await scene.store.record_progress(worker, [progress])

    assert (await scene.show(work.run)).progress == {"done": 3, "total": 10, "message": "copying"}


async def test_stale_progress_is_ignored_and_harms_no_neighbour(scene: Scene) -> None:
    worker, work = await claimed(scene)
    thief = await scene.worker("thief")
    stale = Progress(work.run, 2, 9, 10)

    refused = [
        await scene.store.record_progress(thief, [Progress(work.run, 1, 9, 10)]),
        await scene.store.record_progress(worker, [stale, Progress(work.run, 1, 4, 10)]),
    ]

    progress = (await scene.show(work.run)).progress
    assert progress is not None
    assert progress["done"] == 4
    assert refused == [(work.fence,), (stale.fence,)]


async def test_chunks_are_found_by_a_line_however_many_there_are(scene: Scene) -> None:
    worker, work = await claimed(scene)
    run = RunId(work.run)
    await scene.store.add_chunks(worker, [(work.fence, chunk(n)) for n in range(50)])

    found = await scene.store.chunks(run, 1, from_line=129, limit=2)

    assert [(each.key, each.begins_at) for each in found] == [("key-12", 120), ("key-13", 130)]
    assert await scene.store.chunks(run, 1, from_line=500) == []
    assert await scene.store.arrived_output(run, 1) == ArrivedOutput(lines=500, bytes=5_000)


async def test_lines_are_counted_over_what_has_arrived(scene: Scene) -> None:
    worker, work = await claimed(scene)
    run = RunId(work.run)
    # The worker dropped chunks 1 to 3: its own numbers have a gap, those of readers have none.
    await scene.store.add_chunks(worker, [(work.fence, chunk(n)) for n in (0, 4, 5)])

    found = await scene.store.chunks(run, 1, from_line=10)

    assert [(each.key, each.begins_at) for each in found] == [("key-4", 10), ("key-5", 20)]


async def test_nothing_has_arrived_of_an_attempt_without_chunks(scene: Scene) -> None:
    _, work = await claimed(scene)

    assert await scene.store.arrived_output(RunId(work.run), 1) == ArrivedOutput(0, 0)
