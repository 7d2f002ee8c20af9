"""What a project has of its quota, and carts where only so many runs may wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from rota.domain.carts.facts import CartState, WaitReason
from rota.domain.errors import Conflict
from rota.domain.ids import SHARD_COUNT, JobId, SessionId, micros
from rota.domain.keys import KeyKind, Quota
from rota.domain.run import AttemptResult
from rota.domain.spec import Retry
from rota.domain.states import WAITING_STATES, RunState
from rota.ports.records import RemovedJob, RunQuery
from rota.ports.store import ProjectCounts
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)


async def allow(scene: Scene, queued: int) -> None:
    await scene.store.save_declarations([Quota("default", queued=queued)], actor="admin")


async def waiting(scene: Scene) -> int:
    return len(await scene.store.runs(RunQuery(states=tuple(WAITING_STATES), limit=1_000)))


async def test_what_a_project_has_is_counted(scene: Scene, job: JobId, worker: SessionId) -> None:
    gone = await scene.job("gone")
    await scene.trigger(job, 3)
    await scene.claim(worker, 1)
    await scene.store.save_jobs([], removed=[RemovedJob(gone)], actor="editor")

    assert await scene.store.project_counts("default") == ProjectCounts(jobs=1, waiting=2)
    assert await scene.store.project_counts("other") == ProjectCounts(jobs=0, waiting=0)


async def test_a_cart_starts_as_many_items_as_there_is_room_for(
    scene: Scene, carts: CartScene, job: JobId, worker: SessionId
) -> None:
    await allow(scene, queued=4)
    await scene.trigger(job)
    cart = await carts.submit(job, PARALLEL, items=9)

    first = await carts.advance(cart)
    with pytest.raises(Conflict, match="quota of runs that wait"):
        await scene.trigger(job)
    await scene.claim(worker, 2)
    second = await carts.advance(cart)

    assert (first.state, first.open) == (CartState.RUNNING, 3)
    assert (second.open, await waiting(scene)) == (5, 4)


async def test_a_cart_waits_while_there_is_no_room_and_looks_for_it_by_itself(
    scene: Scene, carts: CartScene, job: JobId, worker: SessionId
) -> None:
    await allow(scene, queued=1)
    await scene.trigger(job)
    cart = await carts.submit(job)

    full = await carts.advance(cart)
    await carts.advance(cart)
    told = [event.kind for event in await scene.store.events(0, 100)]
    await scene.finish(worker, await scene.claim(worker))
    scene.advance(SECOND)
    [look] = await scene.store.carts_to_advance(range(SHARD_COUNT), 10)
    _, flights = await carts.play(look.id, worker)

    assert (full.state, full.reason, full.open) == (CartState.WAITING, WaitReason.QUOTA, 0)
    assert told.count("cart.waiting") == 1
    assert flights == [["item-0"], ["item-1"], ["item-2"]]
    assert (await carts.show(cart)).state is CartState.COMPLETED


async def test_carts_and_people_together_keep_the_quota(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    await allow(scene, queued=5)
    cart = await carts.submit(job, PARALLEL, items=4)

    async def ask() -> None:
        with suppress(Conflict):
            await scene.trigger(job)

    await asyncio.gather(carts.advance(cart), *(ask() for _ in range(4)))

    assert await waiting(scene) == 5


OUTPUT_KEY = "quota:default/output-bytes-per-day"
DAY = timedelta(days=1)


async def test_output_counts_from_the_end_of_its_attempt_until_time_has_made_up_for_it(
    scene: Scene, job: JobId, worker: SessionId
) -> None:
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")
    await scene.trigger(job, 2)
    loud, _ = await scene.claim(worker)
    begin = scene.clock.instant
    await scene.finish(worker, [loud], AttemptResult.FAILED, output_bytes=1_500)

    [blocked] = await scene.trigger(job)
    told = await scene.show(blocked)
    use = (await scene.store.key_uses([OUTPUT_KEY]))[OUTPUT_KEY]
    early = await scene.store.release_keys(100)
    assert told.eligible_at is not None
    scene.advance(told.eligible_at - scene.clock.instant)
    late = await scene.store.release_keys(100)

    assert (told.state, told.reasons[0].gate) == (RunState.BLOCKED, "quota")
    assert told.reasons[0].message == "quota output-bytes-per-day: 0 of 1,000 bytes left"
    assert DAY / 2 <= told.eligible_at - begin < DAY / 2 + DAY / 200
    assert (use.waiting, early, late) == (1, 0, 1)


async def test_output_of_a_day_ago_is_made_up_for_whoever_looked_in_between(
    scene: Scene, job: JobId
) -> None:
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")
    levels = []
    for _ in range(3):
        worker = await scene.worker()
        [run] = await scene.trigger(job)
        await scene.finish(worker, await scene.claim(worker), output_bytes=900)
        assert await scene.state(run) is RunState.COMPLETED
        state = (await scene.store.key_uses([OUTPUT_KEY]))[OUTPUT_KEY].state
        assert state.bucket is not None
        levels.append(state.bucket.level_at(micros(scene.clock.instant)))
        scene.advance(DAY)

    assert levels == pytest.approx([99.0] * 3)


async def test_each_attempt_is_charged_even_where_two_end_in_the_same_instant(
    scene: Scene, worker: SessionId
) -> None:
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")
    await scene.trigger(await scene.job(retry=Retry(attempts=2)))
    for _ in range(2):
        await scene.finish(
            worker, await scene.claim(worker), AttemptResult.FAILED, output_bytes=300
        )
        await scene.release()
        # Without it nobody takes what was charged out of the bucket.
        await scene.store.delete_declaration(KeyKind.QUOTA, "default", "", actor="ann")
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")

    state = (await scene.store.key_uses([OUTPUT_KEY]))[OUTPUT_KEY].state
    assert state.bucket is not None
    assert state.bucket.level == 1_000 - 1 - 2 * 300


async def test_projects_without_a_quota_of_output_are_charged_nothing(
    scene: Scene, job: JobId, worker: SessionId
) -> None:
    await scene.store.save_declarations([Quota("default", running=5)], actor="ann")
    await scene.trigger(job)
    await scene.finish(worker, await scene.claim(worker), output_bytes=10**12)

    await scene.store.save_declarations([Quota("default", output_bytes_per_day=10)], actor="ann")
    [run] = await scene.trigger(job)

    assert await scene.state(run) is RunState.QUEUED
