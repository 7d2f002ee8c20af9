"""Runs that a write queued are named to others, and can be claimed by name."""

from __future__ import annotations

import pytest

from rota.domain.ids import RunId
from rota.domain.spec import Overlap
from rota.ports.queue import MAX_NAMED, Wakes
from testkit.builders import Scene, outcome

pytestmark = pytest.mark.anyio


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

    alone = await scene.store.finish(worker, [outcome(work)], claim=1)
    await scene.store.finish(worker, [outcome(alone.claimed[0])])

    assert published[-2].pools == {}
    assert [len(runs) for runs in published[-1].pools.values()] == [1]


async def test_whether_a_run_still_waits_for_a_worker_can_be_told(scene: Scene) -> None:
    first, second = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 2)
    await scene.claim(await scene.worker(), 1, runs=[first])

    assert not await scene.store.any_queued([first, RunId("r_nope")])
    assert await scene.store.any_queued([first, second])
    assert not await scene.store.any_queued([])
