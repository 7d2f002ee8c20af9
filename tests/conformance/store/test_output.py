from __future__ import annotations

from typing import Any

import pytest

from rota.domain.ids import RunId, SessionId
from rota.domain.run import OutputState
from rota.ports.records import StoredChunk
from rota.ports.work import ChunkMeta, Fence, Progress, Work
from rota.testing.builders import Scene

pytestmark = pytest.mark.anyio


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


async def test_progress_is_kept_while_the_attempt_is_held(scene: Scene) -> None:
    worker, work = await claimed(scene)
    progress = Progress(work.run, work.attempt, 3, 10, "copying")

    await scene.store.record_progress(worker, [progress])

    assert (await scene.show(work.run)).progress == {"done": 3, "total": 10, "message": "copying"}


async def test_stale_progress_is_ignored_and_harms_no_neighbour(scene: Scene) -> None:
    worker, work = await claimed(scene)
    thief = await scene.worker("thief")
    stale = Progress(work.run, 2, 9, 10)

    await scene.store.record_progress(thief, [Progress(work.run, 1, 9, 10)])
    await scene.store.record_progress(worker, [stale, Progress(work.run, 1, 4, 10)])

    progress = (await scene.show(work.run)).progress
    assert progress is not None
    assert progress["done"] == 4
