"""The order of service: where runs wait, and fair shares by the weights that admins set."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import JobId, RunId, SessionId
from rota.domain.keys import Resource
from rota.domain.order import turns_before
from rota.domain.resources import UNIT
from rota.ports.forecasts import Place
from testkit.builders import MINUTE, Scene, new_job

pytestmark = pytest.mark.anyio


async def place(scene: Scene, run: RunId) -> Place:
    found = await scene.store.place_of(run)
    assert found is not None
    return found


async def position(scene: Scene, run: RunId) -> int:
    found = await place(scene, run)
    return sum(turns_before(found.chain, found.in_chain, found.cost, found.chains).values())


async def of_share(scene: Scene, share: str, **fields: Any) -> JobId:
    return await scene.job(share.replace("/", "-"), share=share, **fields)


async def test_a_place_counts_who_is_served_first(scene: Scene) -> None:
    first, second = await scene.trigger(await of_share(scene, "ann"), 2)
    [third] = await scene.trigger(await of_share(scene, "bob"))
    [urgent] = await scene.trigger(await of_share(scene, "eve", priority=9))

    positions = [await position(scene, run) for run in (urgent, first, third, second)]
    worker = await scene.worker(slots=10)
    served = [(await scene.claim(worker, 1))[0].run for _ in positions]

    assert positions == [0, 1, 2, 3]
    assert served == [urgent, first, third, second]


async def test_only_a_run_that_waits_has_a_place(scene: Scene) -> None:
    job = await scene.job()
    [later] = await scene.trigger(job, at=scene.clock.instant + MINUTE)
    [run] = await scene.trigger(job)
    worker = await scene.worker(slots=1)

    await scene.claim(worker)

    assert await scene.store.place_of(run) is None
    assert (await place(scene, later)).blocked_on == ""


async def test_a_place_tells_what_its_share_has_and_what_a_run_costs(scene: Scene) -> None:
    worker = await scene.worker(slots=4, resources={"memory": 8 * UNIT})
    memory = {"memory": 4 * UNIT}
    job = await of_share(scene, "ann", resources=memory, expect=timedelta(seconds=10))
    await scene.trigger(job)
    await scene.claim(worker)
    [run] = await scene.trigger(job)

    found = await place(scene, run)

    assert (found.used, found.cost) == (0.5, 5.0)


async def test_who_waits_for_a_key_goes_by_priority_and_age(scene: Scene) -> None:
    await scene.store.save_declarations([Resource("default", "licence", 1)], actor="admin")
    job = await scene.job(uses={"licence": 1})
    await scene.trigger(job)
    first, second = await scene.trigger(job, 2)
    [urgent] = await scene.trigger(job, priority=9)

    found = [await place(scene, run) for run in (urgent, first, second)]

    assert [each.before for each in found] == [0, 1, 2]
    assert {each.blocked_on for each in found} == {"resource:default/licence"}
    assert found[0].keys == {"resource:default/licence": 1}


async def test_a_line_that_has_no_runs_is_placed_as_if_it_began(scene: Scene) -> None:
    await scene.store.set_share_weight("bob", 3, actor="admin")
    served = await of_share(scene, "ann")
    worker = await scene.worker(slots=10)
    await scene.trigger(served, 4)
    await scene.claim(worker, 2)
    [held] = await scene.trigger(await of_share(scene, "bob"))
    await scene.store.hold_run(held, actor="op")

    found = await place(scene, held)

    [other] = found.chains
    assert other.chain.tag > 0
    assert (found.chain.tag, found.chain.weight) == (other.chain.tag, 3.0)


async def test_a_place_tells_which_worker_is_kept_free_for_whom(scene: Scene) -> None:
    worker = await scene.worker("big", slots=8, resources={"memory": 8 * UNIT})
    await scene.trigger(await scene.job("small", resources={"memory": UNIT}))
    await scene.claim(worker)
    [large] = await scene.trigger(await scene.job("large", resources={"memory": 8 * UNIT}))
    await scene.claim(worker)

    kept = (await place(scene, large)).reservation

    assert kept is not None
    assert (kept.run, kept.worker) == (large, "big")
    assert kept.until > scene.clock.instant


async def weigh(scene: Scene, share: str, weight: float) -> None:
    await scene.store.set_share_weight(share, weight, actor="admin")


async def backlog(scene: Scene, *shares: str, **fields: Any) -> dict[str, JobId]:
    """A job of each share, with more runs than anybody will ask for."""
    jobs = {
        share: await scene.job(share.replace("/", "-"), share=share, **fields) for share in shares
    }
    for job_id in jobs.values():
        await scene.trigger(job_id, 200)
    return jobs


async def serve(scene: Scene, worker: SessionId, count: int) -> Counter[str]:
    """Serve runs one at a time; how many of each job."""
    served: Counter[str] = Counter()
    for _ in range(count):
        [work] = await scene.claim(worker, 1)
        served[work.job_id] += 1
        await scene.finish(worker, [work])
    return served


async def test_a_pool_is_shared_by_weight(scene: Scene) -> None:
    await weigh(scene, "eve", 2)
    jobs = await backlog(scene, "ann", "bob", "eve")

    served = await serve(scene, await scene.worker(slots=1), 60)

    assert served[jobs["eve"]] == pytest.approx(30, abs=4)
    assert served[jobs["ann"]] == pytest.approx(15, abs=4)


async def test_users_divide_what_their_project_gets(scene: Scene) -> None:
    await weigh(scene, "etl", 2)
    await weigh(scene, "etl/ann", 3)
    jobs = await backlog(scene, "etl/ann", "etl/bob", "web/eve")

    lines = {line.share: line.weight for line in await scene.store.chains_of_pool("default")}
    served = await serve(scene, await scene.worker(slots=1), 60)

    assert lines == {"etl/ann": 1.5, "etl/bob": 0.5, "web/eve": 1.0}
    assert served[jobs["etl/ann"]] == pytest.approx(30, abs=4)
    assert served[jobs["web/eve"]] == pytest.approx(20, abs=4)


async def test_a_new_weight_counts_at_once(scene: Scene) -> None:
    jobs = await backlog(scene, "ann", "bob")
    worker = await scene.worker(slots=1)
    await serve(scene, worker, 10)

    await weigh(scene, "ann", 3)
    served = await serve(scene, worker, 40)

    assert served[jobs["ann"]] == pytest.approx(30, abs=4)
    [weight] = await scene.store.share_weights()
    assert (weight.share, weight.weight, weight.updated_by) == ("ann", 3, "admin")


async def test_shares_that_come_with_jobs_weigh_1_unless_they_have_a_weight(scene: Scene) -> None:
    await weigh(scene, "ann", 3)
    jobs = [new_job("one", scene.clock.instant, share="bob")]

    await scene.store.save_jobs(jobs, removed=(), actor="admin", shares=["bob", "ann"])

    weights = {each.share: each.weight for each in await scene.store.share_weights()}
    assert weights == {"ann": 3, "bob": 1}


async def test_who_takes_more_of_the_pool_gets_fewer_runs(scene: Scene) -> None:
    worker = await scene.worker(slots=8, resources={"memory": 8 * UNIT})
    [large] = (await backlog(scene, "ann", resources={"memory": 3 * UNIT})).values()
    [small] = (await backlog(scene, "bob", resources={"memory": 1 * UNIT})).values()

    served = await serve(scene, worker, 60)

    assert served[small] == pytest.approx(3 * served[large], rel=0.25)


async def test_what_a_run_really_took_is_charged_in_the_end(scene: Scene) -> None:
    await weigh(scene, "ann", 2)
    await backlog(scene, "ann")
    worker = await scene.worker(slots=4)
    [work] = await scene.claim(worker, 1)
    [before] = await scene.store.chains_of_pool("default")

    await weigh(scene, "ann", 8)  # does not change what this one costs
    await scene.finish(worker, [work])  # at once

    [after] = await scene.store.chains_of_pool("default")
    assert before.tag == pytest.approx(1 / 4 / 2)  # a second of a slot was expected
    assert after.tag == pytest.approx(0.001 / 4 / 2)


async def test_each_of_those_that_are_claimed_together_has_its_own_price(scene: Scene) -> None:
    await weigh(scene, "eve", 2)
    worker = await scene.worker(slots=8, resources={"memory": 8 * UNIT})
    await backlog(scene, "ann", resources={"memory": 4 * UNIT})
    await backlog(scene, "bob", "eve", resources={"memory": 1 * UNIT})

    works = await scene.claim(worker, 3)
    claimed = {line.share: line.tag for line in await scene.store.chains_of_pool("default")}
    await scene.finish(worker, works)  # at once
    ended = {line.share: line.tag for line in await scene.store.chains_of_pool("default")}

    prices = {"ann": 4 / 8, "bob": 1 / 8, "eve": 1 / 8 / 2}  # of a second
    assert claimed == pytest.approx(prices)
    assert ended == pytest.approx({share: price * 0.001 for share, price in prices.items()})
