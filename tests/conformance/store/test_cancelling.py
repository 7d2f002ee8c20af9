from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.ids import RunId
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, Retry
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio


async def test_what_waits_is_cancelled_at_once(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    [scheduled] = await scene.trigger(job_id, at=scene.clock.instant + MINUTE)
    queued, blocked = await scene.trigger(job_id, 2)

    cancelled = await scene.store.cancel([scheduled, blocked, queued], actor="user")

    assert cancelled == {scheduled, blocked, queued}
    assert await scene.states([scheduled, queued, blocked]) == [RunState.CANCELLED] * 3
    assert await scene.claim(await scene.worker()) == []


async def test_what_is_live_is_asked_to_stop(scene: Scene, published: list[Wakes]) -> None:
    runs = await scene.trigger(await scene.job(), 2)
    worker = await scene.worker()
    works = await scene.claim(worker)
    await scene.start(worker, works[:1])

    cancelled = await scene.store.cancel(runs, actor="user")
    wakes = published[-1]

    asked = tuple(work.fence for work in works)
    assert cancelled == set(runs)
    assert wakes.sessions == {worker}
    assert await scene.store.cancels(worker) == asked
    assert (await scene.store.renew(worker, stopping=False)).cancel == asked
    assert await scene.states(runs) == [RunState.PROCESSING, RunState.CLAIMED]


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (AttemptResult.COMPLETED, RunState.COMPLETED),
        (AttemptResult.FAILED, RunState.CANCELLED),
        (AttemptResult.TIMED_OUT, RunState.CANCELLED),
        (AttemptResult.CANCELLED, RunState.CANCELLED),
    ],
)
async def test_after_a_cancel_nothing_is_tried_again(
    scene: Scene, result: AttemptResult, state: RunState
) -> None:
    [run] = await scene.trigger(await scene.job(retry=Retry(attempts=9)))
    worker = await scene.worker()
    works = await scene.claim(worker)
    await scene.store.cancel([run], actor="user")

    await scene.finish(worker, works, result)

    assert await scene.state(run) is state


async def test_a_cancelled_run_that_loses_its_worker_is_cancelled(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker()
    await scene.start(worker, await scene.claim(worker))
    await scene.store.cancel([run], actor="user")

    await scene.store.end_session(worker)

    assert await scene.state(run) is RunState.CANCELLED


async def test_a_cancelled_at_most_once_run_that_loses_its_worker_is_unknown(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(delivery=Delivery.AT_MOST_ONCE))
    worker = await scene.worker()
    await scene.start(worker, await scene.claim(worker))
    await scene.store.cancel([run], actor="user")

    await scene.store.end_session(worker)
    cancelled = await scene.store.cancel([run], actor="user")

    assert await scene.state(run) is RunState.UNKNOWN
    assert cancelled == frozenset()


async def test_a_run_in_back_off_is_cancelled_at_once(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(retry=Retry(attempts=2, delay=MINUTE)))
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)

    await scene.store.cancel([run], actor="user")
    scene.advance(2 * MINUTE)

    assert await scene.release() == 0
    assert await scene.state(run) is RunState.CANCELLED


async def test_what_has_ended_or_never_was_is_left_out(
    scene: Scene, published: list[Wakes]
) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker))

    cancelled = await scene.store.cancel([run, RunId("r_nope")], actor="user")
    wakes = published[-1]

    assert (cancelled, wakes.sessions) == (frozenset(), frozenset())
    assert await scene.state(run) is RunState.COMPLETED


async def test_the_first_cancel_is_the_one_that_is_remembered(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker()
    await scene.claim(worker)
    first_at = scene.clock.instant

    await scene.store.cancel([run], actor="first")
    scene.advance(timedelta(seconds=5))
    await scene.store.cancel([run], actor="second")

    shown = await scene.show(run)
    assert (shown.cancel_requested_by, shown.cancel_requested_at) == ("first", first_at)
