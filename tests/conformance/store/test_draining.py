from __future__ import annotations

import pytest

from rota.domain.errors import NotFound
from rota.domain.spec import Overlap
from rota.ports.queue import Wakes
from testkit.builders import Scene, outcome

pytestmark = pytest.mark.anyio


async def test_a_drained_worker_keeps_what_it_holds_and_gets_nothing_new(scene: Scene) -> None:
    await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 3)
    worker = await scene.worker("w1")
    [work] = await scene.claim(worker, 1)

    await scene.store.drain_worker("w1", actor="operator")

    renewal = await scene.store.renew(worker, stopping=False)
    assert (renewal.alive, renewal.held, renewal.draining) == (True, (work.fence,), True)
    assert await scene.claim(worker) == []
    finished = await scene.store.finish(worker, [outcome(work)], claim=10)
    assert (finished.accepted, finished.claimed) == ((work.fence,), ())


async def test_others_are_not_drained(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    await scene.worker("w1")
    other = await scene.worker("w2")

    await scene.store.drain_worker("w1", actor="operator")

    assert len(await scene.claim(other)) == 1
    draining = {s.worker: s.draining for s in await scene.store.sessions(alive_only=True)}
    assert draining == {"w1": True, "w2": False}


async def test_draining_outlives_a_restart_of_the_worker(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    old = await scene.worker("w1")
    await scene.store.drain_worker("w1", actor="operator")
    await scene.store.end_session(old)

    new = await scene.worker("w1")

    assert await scene.claim(new) == []


async def test_an_undrained_worker_gets_work_again_and_its_pool_is_told(
    scene: Scene, published: list[Wakes]
) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker("w1")
    await scene.store.drain_worker("w1", actor="operator")

    await scene.store.undrain_worker("w1", actor="operator")
    wakes = published[-1]

    assert wakes.pools == {"default": ()}
    assert not (await scene.store.renew(worker, stopping=False)).draining
    assert len(await scene.claim(worker)) == 1


async def test_each_change_is_recorded_once(scene: Scene) -> None:
    worker = await scene.worker("w1")
    for _ in range(2):
        await scene.store.drain_worker("w1", actor="alice")
    for _ in range(2):
        await scene.store.undrain_worker("w1", actor="bob")

    events = await scene.store.events(0, 100)

    told = [(e.kind, e.actor, e.ids, e.data["workers"]) for e in events if "drain" in e.kind]
    assert told == [
        ("worker.drained", "alice", (worker,), ["w1"]),
        ("worker.undrained", "bob", (worker,), ["w1"]),
    ]


async def test_a_worker_nobody_ever_saw_cannot_be_drained(scene: Scene) -> None:
    for change in (scene.store.drain_worker, scene.store.undrain_worker):
        with pytest.raises(NotFound, match="w9"):
            await change("w9", actor="operator")
