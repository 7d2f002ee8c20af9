"""Runs that workers get: in the order of service, or by the name that a write told."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from rota.domain.ids import JobId, RunId
from rota.domain.order import OLDEST_EVERY
from rota.domain.run import AttemptResult
from rota.domain.spec import Overlap, Retry
from rota.ports.queue import MAX_NAMED, Wakes
from testkit.builders import MINUTE, Scene, outcome, reported
from testkit.cart_scenes import CartScene

pytestmark = pytest.mark.anyio
TICK = timedelta(microseconds=1)


async def test_a_claim_gives_the_oldest_runs_first_each_as_a_first_attempt(scene: Scene) -> None:
    runs = await scene.trigger(await scene.job(), 5)
    worker = await scene.worker()

    works = await scene.claim(worker, 3)

    assert [(work.run, work.attempt) for work in works] == [(run, 1) for run in runs[:3]]


async def test_work_carries_what_the_run_was_asked_for(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.trigger(job_id, inputs={"host": "db1"})
    worker = await scene.worker()

    [work] = await scene.claim(worker)

    assert (work.job_id, work.job_version, work.inputs) == (job_id, 1, {"host": "db1"})
    assert work.due_at == scene.clock.now()


async def test_work_comes_in_columns_each_job_once_and_in_the_order_of_service(
    scene: Scene, carts: CartScene
) -> None:
    first = await scene.job("first", share="team")
    second = await scene.job("second", share="team", deadline=MINUTE)
    worker = await scene.worker(slots=20)
    runs = await scene.trigger(first, inputs={"host": "db1"})
    runs += await scene.trigger(second)
    runs += await scene.trigger(first)
    runs += await scene.trigger(second, inputs={})
    cart = await carts.submit(first, items=1)
    await carts.advance(cart)

    batch = (await scene.store.claim(worker, 20)).batch

    assert batch.runs[:4] == runs
    assert (batch.numbers, batch.jobs) == ([1] * 5, [(first, 1), (second, 1)])
    assert batch.job_of == [0, 1, 0, 1, 0]
    assert {at: batch.inputs[at] for at in (0, 3)} == {0: '{"host":"db1"}', 3: "{}"}
    assert not batch.inputs.keys() & {1, 2}
    assert batch.deadlines == dict.fromkeys((1, 3), scene.clock.now() + MINUTE // TICK)
    assert batch.carts == {4: (cart, "item-0")}
    assert set(batch.due_at) == {scene.clock.now()}


async def test_work_of_one_job_names_it_once(scene: Scene) -> None:
    job_id = await scene.job()
    runs = await scene.trigger(job_id, 3)
    worker = await scene.worker()

    batch = (await scene.store.claim(worker, 5)).batch

    assert (batch.runs, batch.jobs, batch.job_of) == (runs, [(job_id, 1)], [])
    assert (batch.inputs, batch.deadlines, batch.carts) == ({}, {}, {})


async def test_a_run_is_claimed_once(scene: Scene) -> None:
    await scene.trigger(await scene.job(), 4)
    first, second = await scene.worker("first"), await scene.worker("second")

    works = [*await scene.claim(first, 3), *await scene.claim(second, 3)]

    assert len({work.run for work in works}) == len(works) == 4


async def test_a_session_never_holds_more_than_its_slots(scene: Scene) -> None:
    await scene.trigger(await scene.job(), 5)
    worker = await scene.worker(slots=2)

    first, second = await scene.claim(worker), await scene.claim(worker)
    await scene.finish(worker, first[:1])

    assert (len(first), len(second), len(await scene.claim(worker))) == (2, 0, 1)


async def test_a_stopping_session_gets_nothing(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker()

    await scene.store.renew(worker, stopping=True)

    assert await scene.claim(worker) == []


async def test_a_session_that_ended_gets_nothing(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker()

    await scene.store.end_session(worker)

    assert await scene.claim(worker) == []


async def test_a_session_without_a_lease_gets_nothing_until_it_renews(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker(lease=MINUTE)
    scene.advance(MINUTE)

    before = await scene.claim(worker)
    await scene.store.renew(worker, stopping=False)

    assert (len(before), len(await scene.claim(worker))) == (0, 1)


async def test_a_pool_serves_its_own_runs_only(scene: Scene) -> None:
    await scene.trigger(await scene.job("plain"))
    await scene.trigger(await scene.job("special", pool="gpu"))
    worker = await scene.worker(pool="gpu")

    works = await scene.claim(worker)

    assert [(await scene.show(work.run)).job for work in works] == ["special"]


async def test_a_run_goes_only_to_a_worker_with_its_labels(scene: Scene) -> None:
    other = await scene.worker("other", labels={"site": "nyc"})
    right = await scene.worker("right", labels={"site": "fra", "disk": "ssd"})
    await scene.trigger(await scene.job("picky", needs={"site": "fra"}))

    assert await scene.claim(other) == []
    assert len(await scene.claim(right)) == 1


async def test_a_function_goes_only_to_a_worker_that_registered_it(scene: Scene) -> None:
    other = await scene.worker("other", functions=("app.receive",))
    right = await scene.worker("right", functions=("app.send",))
    await scene.trigger(await scene.job("call", function="app.send"))

    assert await scene.claim(other) == []
    assert len(await scene.claim(right)) == 1


async def test_runs_that_do_not_fit_do_not_hold_up_those_that_do(scene: Scene) -> None:
    await scene.worker("other", labels={"site": "fra"})
    await scene.trigger(await scene.job("picky", needs={"site": "fra"}), 50)
    [plain] = await scene.trigger(await scene.job("plain"))
    worker = await scene.worker()

    works = await scene.claim(worker)

    assert [work.run for work in works] == [plain]


async def test_a_higher_priority_goes_first(scene: Scene) -> None:
    await scene.trigger(await scene.job("low", priority=1), 3)
    [urgent] = await scene.trigger(await scene.job("high", priority=9))
    worker = await scene.worker()

    [work] = await scene.claim(worker, 1)

    assert work.run == urgent


async def test_ten_thousand_runs_of_one_do_not_delay_the_first_of_another(scene: Scene) -> None:
    flood = await scene.job("flood", share="ann")
    await scene.trigger(flood, 10_000)
    worker = await scene.worker(slots=400)
    await scene.finish(worker, await scene.claim(worker, 400))
    [first] = await scene.trigger(await scene.job("single", share="bob"))

    works = await scene.claim(worker, 3)

    assert first in [work.run for work in works]


async def test_nobody_hoards_credit_while_having_nothing_to_run(scene: Scene) -> None:
    busy, idle = await scene.job("busy", share="ann"), await scene.job("idle", share="bob")
    worker = await scene.worker(slots=10)
    for _ in range(20):
        await scene.trigger(busy, 10)
        await scene.finish(worker, await scene.claim(worker))

    await scene.trigger(idle, 200)
    await scene.trigger(busy, 200)
    served = await _serve(scene, 100)

    assert served[idle] == pytest.approx(50, abs=5)


async def test_keys_share_evenly_even_where_runs_take_no_time(scene: Scene) -> None:
    jobs = [await scene.job(share, share=share) for share in ("ann", "bob", "eve")]
    await scene.worker("idle", slots=100)
    for job_id in jobs:
        await scene.trigger(job_id, 100)

    served = await _serve(scene, 90)

    assert all(served[job_id] == pytest.approx(30, abs=5) for job_id in jobs)


async def _serve(scene: Scene, count: int) -> Counter[JobId]:
    """Serve runs one at a time; how many of each job were served."""
    worker = await scene.worker("server", slots=1)
    served: Counter[JobId] = Counter()
    for _ in range(count):
        [work] = await scene.claim(worker)
        served[JobId(work.job_id)] += 1
        await scene.finish(worker, [work])
    return served


async def test_every_sixteenth_slot_goes_to_the_oldest_run(scene: Scene) -> None:
    [old] = await scene.trigger(await scene.job("low", priority=0))
    await scene.trigger(await scene.job("high", priority=9), 40)
    worker = await scene.worker(slots=100)

    works = [work for _ in range(OLDEST_EVERY) for work in await scene.claim(worker, 1)]

    assert old in [work.run for work in works]


async def test_a_big_claim_serves_as_many_of_the_oldest_as_it_has_sixteenths(scene: Scene) -> None:
    old = await scene.trigger(await scene.job("low", priority=0), 20)
    await scene.trigger(await scene.job("high", priority=9), 400)
    worker = await scene.worker(slots=160)

    works = await scene.claim(worker, 160)

    served = {work.run for work in works}
    assert served.issuperset(old[: 160 // OLDEST_EVERY])


async def test_the_next_attempt_has_the_next_number(scene: Scene) -> None:
    job_id = await scene.job(retry=Retry(attempts=3, delay=timedelta(0)))
    await scene.trigger(job_id)
    worker = await scene.worker()

    numbers = []
    for _ in range(3):
        [work] = await scene.claim(worker)
        numbers.append(work.attempt)
        await scene.finish(worker, [work], AttemptResult.FAILED)
        await scene.release()

    assert numbers == [1, 2, 3]


async def test_named_runs_go_first_then_others_in_order(scene: Scene) -> None:
    runs = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 5)
    worker = await scene.worker()

    works = await scene.claim(worker, 3, runs=[runs[4]])

    assert [work.run for work in works] == [runs[4], runs[0], runs[1]]


async def test_no_more_named_runs_than_slots_are_given(scene: Scene) -> None:
    runs = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 5)
    worker = await scene.worker()

    works = await scene.claim(worker, 2, runs=runs[2:])

    assert len(works) == 2
    assert {work.run for work in works} < set(runs[2:])


async def test_names_that_are_stale_unknown_or_unfit_are_passed_over(scene: Scene) -> None:
    plain = await scene.job("plain", overlap=Overlap.ALLOW)
    [done, waiting] = await scene.trigger(plain, 2)
    [elsewhere] = await scene.trigger(await scene.job("gpu", pool="gpu"))
    [unfit] = await scene.trigger(await scene.job("picky", needs={"site": "fra"}))
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker, 1, runs=[done]))

    works = await scene.claim(worker, runs=[done, elsewhere, unfit, "r_nope", waiting])

    assert [work.run for work in works] == [waiting]


async def test_the_same_name_twice_is_one_attempt(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker()

    works = await scene.claim(worker, runs=[run, run])

    assert [(work.run, work.attempt) for work in works] == [(run, 1)]


async def test_a_claim_by_name_is_charged_like_any_other(scene: Scene) -> None:
    """Otherwise a share that is always named first would never fall back."""
    greedy = await scene.job("greedy", overlap=Overlap.ALLOW, share="greedy")
    modest = await scene.job("modest", overlap=Overlap.ALLOW, share="modest")
    named = await scene.trigger(greedy, 10)
    [next_run] = await scene.trigger(modest)
    worker = await scene.worker(slots=100)
    await scene.claim(worker, 5, runs=named[:5])

    [work] = await scene.claim(worker, 1)

    assert work.run == next_run


async def test_whoever_queues_runs_names_them(scene: Scene, published: list[Wakes]) -> None:
    submitted = await scene.submit(await scene.job(overlap=Overlap.ALLOW), 3)

    assert published[-1].pools == {"default": submitted.runs}


async def test_many_runs_are_not_named(scene: Scene, published: list[Wakes]) -> None:
    await scene.submit(await scene.job(overlap=Overlap.ALLOW), MAX_NAMED + 1)

    assert published[-1].pools == {"default": ()}


async def test_what_a_report_claims_itself_is_not_offered_to_others(
    scene: Scene, published: list[Wakes]
) -> None:
    job = await scene.job(max_concurrency=1)
    await scene.trigger(job, 3)
    worker = await scene.worker()
    [work] = await scene.claim(worker)

    alone = await scene.store.finish(worker, reported(outcome(work)), claim=1)
    await scene.store.finish(worker, reported(outcome(alone.claimed.work(0))))

    assert published[-2].pools == {}
    assert [len(runs) for runs in published[-1].pools.values()] == [1]


async def test_whether_a_run_still_waits_for_a_worker_can_be_told(scene: Scene) -> None:
    first, second = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 2)
    await scene.claim(await scene.worker(), 1, runs=[first])

    assert not await scene.store.any_queued([first, RunId("r_nope")])
    assert await scene.store.any_queued([first, second])
    assert not await scene.store.any_queued([])
