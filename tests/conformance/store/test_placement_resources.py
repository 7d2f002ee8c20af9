"""What workers offer and runs take: all at once, never more than there is, and given back once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rota.domain.ids import RunId, SessionId
from rota.domain.resources import UNIT
from rota.domain.states import RunState
from rota.ports.work import Work
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio

RACERS = 200


def amounts(**units: float) -> dict[str, int]:
    """Of resources, in thousandths."""
    return {name: int(each * UNIT) for name, each in units.items()}


async def runs(scene: Scene, count: int = 1, name: str = "job", **units: float) -> list[RunId]:
    """Runs of a new job that take so much."""
    return await scene.trigger(await scene.job(name, resources=amounts(**units)), count)


async def used(scene: Scene, session: SessionId) -> dict[str, int]:
    [found] = [s for s in await scene.store.sessions(alive_only=False) if s.id == session]
    return {name: found.used.get(name, 0) for name in found.resources}


def names(works: list[Work]) -> list[str]:
    return [work.run for work in works]


async def test_a_worker_gives_no_more_of_a_resource_than_it_has(scene: Scene) -> None:
    worker = await scene.worker(slots=100, resources=amounts(cpu=4))
    waiting = await runs(scene, 6, cpu=1.5)

    first, second = await scene.claim(worker), await scene.claim(worker)
    in_use = await used(scene, worker)
    await scene.finish(worker, first[:1])
    third = await scene.claim(worker)

    assert (names(first), second, names(third)) == (waiting[:2], [], waiting[2:3])
    assert in_use == amounts(cpu=3)


async def test_a_run_gets_all_that_it_needs_or_nothing(scene: Scene) -> None:
    worker = await scene.worker(resources=amounts(cpu=4, memory=6))
    first, second = await runs(scene, 2, cpu=1, memory=4)

    works = await scene.claim(worker)

    assert names(works) == [first]
    assert await used(scene, worker) == amounts(cpu=1, memory=4)
    assert await scene.state(second) == RunState.QUEUED


async def test_what_a_worker_does_not_offer_holds_up_nobody_there(scene: Scene) -> None:
    worker = await scene.worker(resources=amounts(cpu=4))
    await scene.worker("other", resources=amounts(cpu=8, licence=1))
    await runs(scene, 3, "odd", licence=1)
    await runs(scene, 3, "large", cpu=5)
    [plain] = await scene.trigger(await scene.job("plain"))

    assert names(await scene.claim(worker)) == [plain]


async def test_runs_that_need_only_a_slot_go_beside_others(scene: Scene) -> None:
    worker = await scene.worker(slots=3, resources=amounts(cpu=4))
    await runs(scene, 2, cpu=4)
    plain = await scene.trigger(await scene.job("plain"), 2)

    works = await scene.claim(worker)

    assert (len(works), set(names(works)) > set(plain)) == (3, True)


async def test_claims_that_race_for_the_last_unit_give_it_once(scene: Scene) -> None:
    worker = await scene.worker(slots=100, resources=amounts(gpu=3))
    await runs(scene, 20, gpu=1)
    await scene.claim(worker, 2)

    claims = await asyncio.gather(*(scene.claim(worker) for _ in range(RACERS)))

    assert sorted(map(len, claims)) == [0] * (RACERS - 1) + [1]
    assert await used(scene, worker) == amounts(gpu=3)


async def test_racing_ends_and_claims_keep_within_what_there_is(scene: Scene) -> None:
    workers = [await scene.worker(f"w{n}", slots=100, resources=amounts(gpu=2)) for n in range(3)]
    waiting = await runs(scene, 60, gpu=1)
    done: Counter[str] = Counter()

    async def serve(worker: SessionId) -> None:
        while works := await scene.claim(worker):
            assert (await used(scene, worker))["gpu"] <= 2 * UNIT
            await asyncio.gather(*(scene.finish(worker, [work]) for work in works))
            done.update(names(works))

    await asyncio.gather(*(serve(worker) for worker in workers for _ in range(3)))

    assert done == Counter(waiting)
    assert [await used(scene, worker) for worker in workers] == [amounts(gpu=0)] * 3


async def test_a_lost_worker_holds_nothing_any_more(scene: Scene) -> None:
    lost = await scene.worker("lost", resources=amounts(memory=8))
    [run] = await runs(scene, memory=8)
    await scene.claim(lost)

    await scene.vanish(lost)
    heir = await scene.worker("heir", resources=amounts(memory=8))
    await scene.release()

    assert await used(scene, lost) == amounts(memory=0)
    assert names(await scene.claim(heir)) == [run]


async def test_a_late_report_gives_nothing_back_a_second_time(scene: Scene) -> None:
    lost = await scene.worker("lost", resources=amounts(memory=8))
    await runs(scene, 2, memory=8)
    held = await scene.claim(lost, 1)
    await scene.vanish(lost)
    heir = await scene.worker("heir", resources=amounts(memory=8))
    await scene.release()
    await scene.claim(heir)

    late = await scene.finish(lost, held)

    assert late.refused == (held[0].fence,)
    assert await used(scene, heir) == amounts(memory=8)
    assert await scene.claim(heir) == []


async def test_a_named_run_is_given_only_what_is_there(scene: Scene) -> None:
    worker = await scene.worker(resources=amounts(cpu=4))
    waiting = await runs(scene, 2, cpu=3)

    [work] = await scene.claim(worker, runs=waiting[1:])

    assert (work.run, await scene.claim(worker, runs=waiting)) == (waiting[1], [])


async def test_the_sixteenth_slot_goes_to_the_oldest_run_that_fits(scene: Scene) -> None:
    worker = await scene.worker(slots=100, resources=amounts(cpu=8))
    [large] = await scene.trigger(await scene.job("large", priority=0, resources=amounts(cpu=8)))
    [old] = await scene.trigger(await scene.job("low", priority=0, resources=amounts(cpu=0.1)))
    await scene.trigger(await scene.job("high", priority=9, resources=amounts(cpu=0.1)), 40)

    works = [work for _ in range(16) for work in await scene.claim(worker, 1)]

    assert old in names(works)
    assert large not in names(works)


async def test_a_session_that_ended_offers_nothing_to_the_pool(scene: Scene) -> None:
    leaving = await scene.worker("leaving", resources=amounts(cpu=12))
    staying = await scene.worker("staying", resources=amounts(cpu=4))
    await scene.store.end_session(leaving)
    await scene.trigger(await scene.job(expect=MINUTE, resources=amounts(cpu=1)))

    await scene.claim(staying)

    [line] = await scene.store.chains_of_pool("default")
    assert line.tag == pytest.approx(60 / 4)  # a quarter of what is left, for a minute
