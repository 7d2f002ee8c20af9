"""A worker is kept free for the best-ranked run that does not fit; others go around it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import RunId, SessionId
from rota.domain.resources import UNIT
from rota.domain.states import RunState
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio

ALL = 8  # of the memory of a worker
SECOND = timedelta(seconds=1)  # so old, a run is not left to a worker that it fits better


async def ask(
    scene: Scene,
    name: str,
    memory: int,
    count: int = 1,
    *,
    minutes: int | None = None,
    **fields: Any,
) -> list[RunId]:
    """Runs that need so much memory; `minutes` is their timeout."""
    timeout = None if minutes is None else minutes * MINUTE
    job_id = await scene.job(name, resources={"memory": memory * UNIT}, timeout=timeout, **fields)
    return await scene.trigger(job_id, count)


async def worker(scene: Scene, name: str = "worker") -> SessionId:
    return await scene.worker(name, slots=ALL, resources={"memory": ALL * UNIT})


async def given(scene: Scene, session: SessionId, slots: int = 100) -> list[str]:
    return [work.run for work in await scene.claim(session, slots)]


async def test_a_large_run_starts_once_what_ran_before_it_has_ended(scene: Scene) -> None:
    here = await worker(scene)
    await ask(scene, "early", 2, 3)
    running = await scene.claim(here)
    [large] = await ask(scene, "large", ALL)
    await ask(scene, "stream", 1, 100)

    streamed = []
    for work in running:
        streamed += await given(scene, here)
        await scene.finish(here, [work])

    assert (streamed, await given(scene, here)) == ([], [large])


async def test_runs_that_must_be_over_in_time_go_before_it(scene: Scene) -> None:
    here = await worker(scene)
    await ask(scene, "early", 2, minutes=10)
    running = await scene.claim(here)
    [large] = await ask(scene, "large", ALL)
    await ask(scene, "long", 1, minutes=11)
    [short] = await ask(scene, "short", 1, minutes=9)

    backfilled = await scene.claim(here)
    scene.advance(9 * MINUTE)
    await scene.finish(here, backfilled)
    nothing = await given(scene, here)
    await scene.finish(here, running)

    assert ([work.run for work in backfilled], nothing) == ([short], [])
    assert await given(scene, here) == [large]


async def test_runs_go_into_what_it_leaves(scene: Scene) -> None:
    here = await worker(scene)
    await ask(scene, "early", 4)
    running = await scene.claim(here)
    [large] = await ask(scene, "large", 6)
    small = await ask(scene, "small", 2, 2)

    beside = await given(scene, here)
    await scene.finish(here, running)

    assert (beside, await given(scene, here)) == (small[:1], [large])


async def test_it_is_for_the_best_ranked_alone(scene: Scene) -> None:
    first, second = await worker(scene, "first"), await worker(scene, "second")
    await ask(scene, "early", 6)
    await scene.claim(first)
    await ask(scene, "early too", 6)
    await scene.claim(second)
    large, _ = await ask(scene, "large", ALL, 2)
    await given(scene, first)
    small = await ask(scene, "small", 1, 4)

    assert await given(scene, first) == []
    assert await given(scene, second) == small[:2]
    assert large not in await given(scene, second)


async def test_it_ends_when_another_worker_takes_the_run(scene: Scene) -> None:
    here = await worker(scene)
    await ask(scene, "early", 2)
    await scene.claim(here)
    [large] = await ask(scene, "large", ALL)
    small = await ask(scene, "small", 1, 2)
    kept = await given(scene, here)

    elsewhere = await given(scene, await worker(scene, "other"), 1)

    assert (kept, elsewhere, await given(scene, here)) == ([], [large], small)


async def test_it_ends_with_its_worker(scene: Scene) -> None:
    leaving, staying = await worker(scene, "leaving"), await worker(scene, "staying")
    await ask(scene, "early", 2, 2)
    scene.advance(SECOND)
    for session in (leaving, staying):
        await scene.claim(session, 1)
    [large] = await ask(scene, "large", ALL)
    await given(scene, leaving)
    small = await ask(scene, "small", 1)

    passed = await given(scene, staying, 1)
    await scene.store.end_session(leaving)
    await ask(scene, "smaller", 1)

    assert (passed, await given(scene, staying)) == (small, [])
    assert await scene.state(large) is RunState.QUEUED


async def test_it_is_prolonged_while_it_is_for_the_best_run(scene: Scene) -> None:
    here, other = await worker(scene), await worker(scene, "other")
    await ask(scene, "early", 2, minutes=60)
    running = await scene.claim(here)
    await ask(scene, "early too", 2, minutes=60)
    scene.advance(SECOND)
    await scene.claim(other)
    [large] = await ask(scene, "large", ALL)
    await ask(scene, "small", 1, 20)

    for _ in range(5):
        assert await given(scene, here) == []
        scene.advance(timedelta(seconds=40))
    await scene.finish(here, running)

    assert await given(scene, here) == [large]


async def test_one_that_nobody_prolongs_is_over_after_a_minute(scene: Scene) -> None:
    silent, other = await worker(scene, "silent"), await worker(scene, "other")
    await ask(scene, "early", 2, minutes=60)
    await scene.claim(silent)
    await ask(scene, "early too", 2, minutes=60)
    scene.advance(SECOND)
    running = await scene.claim(other)
    [large] = await ask(scene, "large", ALL)
    await given(scene, silent)
    scene.advance(MINUTE + SECOND)
    await given(scene, other)
    await ask(scene, "small", 1, 20)

    kept = await given(scene, other)
    await scene.finish(other, running)

    assert (kept, await given(scene, other)) == ([], [large])
