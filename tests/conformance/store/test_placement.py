"""Which worker a run is placed on: the one it fits best, or one that is kept free for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import RunId, SessionId
from rota.domain.resources import UNIT, fits
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Claimed, Room
from rota.ports.work import Fence, WorkBatch
from testkit.builders import LEASE, MINUTE, Scene, firing_of, outcome, reported

pytestmark = pytest.mark.anyio
GIB = 1024**3
SECOND = timedelta(seconds=1)  # so old, a run is not left to a worker that it fits better


@dataclass(frozen=True, slots=True)
class Pair:
    """A small and a big worker of one pool."""

    scene: Scene
    small: SessionId
    big: SessionId

    async def runs(self, count: int, memory: int, name: str = "job", **fields: Any) -> list[RunId]:
        resources = {"memory": memory * GIB * UNIT}
        return await self.scene.trigger(
            await self.scene.job(name, resources=resources, **fields), count
        )

    async def claim(self, session: SessionId, slots: int = 100, *named: str) -> Claimed:
        return await self.scene.store.claim(session, slots, 1, named)

    async def takes(self, session: SessionId, *named: str) -> list[str]:
        return [work.run for work in (await self.claim(session, 100, *named)).batch.works()]


async def worker(scene: Scene, name: str, memory: int, **fields: Any) -> SessionId:
    slots = fields.pop("slots", 8)
    resources = {"memory": memory * GIB * UNIT}
    return await scene.worker(name, slots=slots, resources=resources, **fields)


@pytest.fixture
async def pair(scene: Scene) -> Pair:
    return Pair(scene, await worker(scene, "small", 4), await worker(scene, "big", 64))


async def test_a_small_run_goes_to_the_small_worker_though_the_big_one_claims_first(
    pair: Pair,
    published: list[Wakes],
) -> None:
    runs = await pair.runs(1, memory=1)

    left = await pair.claim(pair.big)

    assert (left.batch, left.left) == (WorkBatch(), frozenset(runs))
    assert published[-1].favoured == {pair.small}
    assert await pair.takes(pair.small) == runs


async def test_runs_that_a_ticket_named_are_left_too(pair: Pair) -> None:
    runs = await pair.runs(4, memory=1)

    assert await pair.takes(pair.big, *runs) == []
    assert sorted(await pair.takes(pair.small, *runs)) == sorted(runs)


async def test_so_is_the_oldest_while_it_is_young(pair: Pair) -> None:
    huge = await worker(pair.scene, "huge", 128, slots=64)  # every 16th slot is for the oldest
    runs = await pair.runs(4, memory=1)

    assert await pair.takes(huge, *runs) == []
    assert sorted(await pair.takes(pair.small, *runs)) == sorted(runs)


async def test_no_more_is_left_than_the_other_has_room_for(pair: Pair) -> None:
    runs = await pair.runs(6, memory=1)

    first = await pair.takes(pair.big)

    assert first == runs[4:]
    assert await pair.takes(pair.small) == runs[:4]


async def test_one_claim_leaves_a_hundred_at_most(scene: Scene) -> None:
    medium = await worker(scene, "medium", 200, slots=200)
    pair = Pair(scene, medium, await worker(scene, "big", 1_000, slots=1_000))
    runs = await pair.runs(101, memory=1)

    assert await pair.takes(pair.big) == runs[100:]


async def test_after_a_second_whoever_has_room_takes_it(pair: Pair) -> None:
    runs = await pair.runs(1, memory=1)
    assert await pair.takes(pair.big) == []

    pair.scene.advance(SECOND)

    assert await pair.takes(pair.big) == runs


async def test_a_large_run_finds_the_big_worker_whole(pair: Pair) -> None:
    small = await pair.runs(4, memory=1)
    assert await pair.takes(pair.big) == []
    assert await pair.takes(pair.small) == small

    large = await pair.runs(1, memory=64, name="large")

    assert await pair.takes(pair.small) == []
    assert await pair.takes(pair.big) == large


async def test_a_full_worker_is_no_reason_to_leave_a_run(pair: Pair) -> None:
    await pair.runs(1, memory=4, name="filler")
    assert len(await pair.takes(pair.small)) == 1
    runs = await pair.runs(1, memory=1)

    assert await pair.takes(pair.big) == runs


async def test_neither_is_one_that_gets_nothing(pair: Pair) -> None:
    await pair.scene.store.drain_worker("small", actor="test")
    runs = await pair.runs(1, memory=1)

    assert await pair.takes(pair.big) == runs


async def test_nor_one_that_stops(pair: Pair) -> None:
    await pair.scene.store.renew(pair.small, stopping=True)
    runs = await pair.runs(1, memory=1)

    assert await pair.takes(pair.big) == runs


async def test_nor_one_that_was_not_heard_of_in_time(pair: Pair) -> None:
    pair.scene.advance(LEASE / 2)
    await pair.scene.store.renew(pair.big, stopping=False)
    pair.scene.advance(LEASE / 2 + SECOND)
    runs = await pair.runs(1, memory=1)

    assert await pair.takes(pair.big) == runs


async def test_nor_one_that_lacks_a_label(pair: Pair) -> None:
    labelled = await worker(pair.scene, "labelled", 64, labels={"zone": "a"})
    runs = await pair.runs(1, memory=1, needs={"zone": "a"})

    assert await pair.takes(labelled) == runs


async def test_nor_one_of_another_pool(pair: Pair) -> None:
    alone = await worker(pair.scene, "alone", 64, pool="other")
    runs = await pair.runs(1, memory=1, pool="other")

    assert await pair.takes(alone) == runs


async def test_nor_one_that_is_kept_free_for_a_large_run(pair: Pair) -> None:
    await pair.runs(1, memory=2, name="early")
    assert len(await pair.takes(pair.small)) == 1
    large = await pair.runs(1, memory=4, name="large")
    assert await pair.takes(pair.small) == []  # and it is kept free from now on

    runs = await pair.runs(1, memory=1)

    assert await pair.takes(pair.big) == large + runs


async def test_equal_workers_leave_nothing_to_each_other(scene: Scene) -> None:
    pair = Pair(scene, await worker(scene, "one", 8), await worker(scene, "other", 8))
    runs = await pair.runs(1, memory=1)

    assert await pair.takes(pair.big) == runs


async def test_what_asks_for_nothing_but_a_slot_is_not_left(pair: Pair) -> None:
    await pair.runs(1, memory=1)  # so that runs are placed
    plain = await pair.scene.trigger(await pair.scene.job("plain"))

    assert await pair.takes(pair.big) == plain


async def test_neither_is_what_goes_alone(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(resources={"memory": GIB * UNIT}))
    for _ in range(2):  # workers that it loses
        lost = await worker(scene, "lost", 4)
        await scene.claim(lost)
        await scene.vanish(lost)
        await scene.release()
    await worker(scene, "small", 4)

    assert [work.run for work in await scene.claim(await worker(scene, "big", 64))] == [run]


async def test_nor_what_a_worker_is_kept_free_for(pair: Pair) -> None:
    filler = await pair.runs(1, memory=64, name="filler")
    held = list((await pair.claim(pair.big, 1)).batch.works())
    assert [work.run for work in held] == filler
    [early] = await pair.runs(1, memory=4, name="early")
    assert await pair.takes(pair.small) == [early]
    [run] = await pair.runs(1, memory=3)
    assert await pair.takes(pair.big) == []  # and it is kept free from now on

    await pair.scene.finish(pair.big, held)
    await pair.scene.finish(pair.small, [Fence(early, 1)])

    assert await pair.takes(pair.big) == [run]


async def test_in_a_crowd_nothing_is_left(pair: Pair) -> None:
    for number in range(100):
        await worker(pair.scene, f"tiny-{number}", 2)
    runs = await pair.runs(1, memory=1)

    assert await pair.takes(pair.big) == runs


async def test_what_is_due_is_left_as_well_and_offered_to_all(
    pair: Pair, published: list[Wakes]
) -> None:
    scene, resources = pair.scene, {"memory": GIB * UNIT}
    job = await scene.show_job(await scene.job(next_at=scene.clock.instant, resources=resources))
    firing = firing_of(job, next_at=scene.clock.instant + MINUTE)

    fired = await scene.store.fire([firing], await scene.ownership(), Room(pair.big, 8))

    wakes = published[-1]
    assert (fired.claimed, wakes.favoured) == (WorkBatch(), frozenset([pair.small]))
    assert await pair.takes(pair.small) == [*wakes.pools["default"]]


async def test_after_the_end_of_another_it_is_left_as_well(
    pair: Pair, published: list[Wakes]
) -> None:
    await pair.runs(1, memory=64, name="large")
    held = list((await pair.claim(pair.big)).batch.works())
    runs = await pair.runs(1, memory=1)

    finished = await pair.scene.store.finish(pair.big, reported(outcome(held[0])), claim=8)

    assert (finished.claimed, published[-1].favoured) == (WorkBatch(), frozenset([pair.small]))
    assert await pair.takes(pair.small) == runs


async def test_racing_workers_of_different_sizes_get_all_done_within_what_they_have(
    pair: Pair,
) -> None:
    waiting = await pair.runs(60, memory=3)
    done: list[str] = []

    async def serve(session: SessionId) -> None:
        while len(done) < len(waiting):
            works = list((await pair.claim(session, 4)).batch.works())
            for each in await pair.scene.store.sessions(alive_only=True):
                assert fits(each.used, each.capacity)
            await pair.scene.finish(session, works)
            done.extend(work.run for work in works)

    await asyncio.gather(*(serve(each) for each in (pair.small, pair.big) for _ in range(2)))

    assert sorted(done) == sorted(waiting)


ALL = 8  # of the memory of a worker


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


async def whole_worker(scene: Scene, name: str = "worker") -> SessionId:
    return await scene.worker(name, slots=ALL, resources={"memory": ALL * UNIT})


async def given(scene: Scene, session: SessionId, slots: int = 100) -> list[str]:
    return [work.run for work in await scene.claim(session, slots)]


async def test_a_large_run_starts_once_what_ran_before_it_has_ended(scene: Scene) -> None:
    here = await whole_worker(scene)
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
    here = await whole_worker(scene)
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
    here = await whole_worker(scene)
    await ask(scene, "early", 4)
    running = await scene.claim(here)
    [large] = await ask(scene, "large", 6)
    small = await ask(scene, "small", 2, 2)

    beside = await given(scene, here)
    await scene.finish(here, running)

    assert (beside, await given(scene, here)) == (small[:1], [large])


async def test_it_is_for_the_best_ranked_alone(scene: Scene) -> None:
    first, second = await whole_worker(scene, "first"), await whole_worker(scene, "second")
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
    here = await whole_worker(scene)
    await ask(scene, "early", 2)
    await scene.claim(here)
    [large] = await ask(scene, "large", ALL)
    small = await ask(scene, "small", 1, 2)
    kept = await given(scene, here)

    elsewhere = await given(scene, await whole_worker(scene, "other"), 1)

    assert (kept, elsewhere, await given(scene, here)) == ([], [large], small)


async def test_it_ends_with_its_worker(scene: Scene) -> None:
    leaving, staying = await whole_worker(scene, "leaving"), await whole_worker(scene, "staying")
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
    here, other = await whole_worker(scene), await whole_worker(scene, "other")
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
    silent, other = await whole_worker(scene, "silent"), await whole_worker(scene, "other")
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
