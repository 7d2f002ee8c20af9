"""Where runs wait: in the order of service, and before shared keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import JobId, RunId
from rota.domain.keys import Resource
from rota.domain.order import turns_before
from rota.domain.resources import UNIT
from rota.ports.forecasts import Place
from testkit.builders import MINUTE, Scene

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
