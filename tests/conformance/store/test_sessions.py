from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.ids import SessionId
from rota.domain.states import RunState
from rota.testing.builders import MINUTE, Scene, hello

pytestmark = pytest.mark.anyio
TICK = timedelta(microseconds=1)


async def test_a_worker_that_registers_has_a_lease(scene: Scene) -> None:
    session, _ = await scene.store.register(
        hello("w1", slots=4, labels={"site": "fra"}, functions=("f",)), MINUTE
    )

    assert (session.worker, session.slots, session.labels) == ("w1", 4, {"site": "fra"})
    assert (session.functions, session.alive, session.beats) == (("f",), True, 0)
    assert session.expires_at == scene.clock.instant + MINUTE
    assert [s.id for s in await scene.store.sessions(alive_only=True)] == [session.id]


async def test_a_renewal_prolongs_the_lease_and_tells_what_is_held(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker(lease=MINUTE)
    [work] = await scene.claim(worker)
    now = scene.advance(MINUTE / 2)

    renewal = await scene.store.renew(worker, stopping=False)

    [session] = await scene.store.sessions(alive_only=True)
    assert (renewal.alive, renewal.now, renewal.held) == (True, now, (work.fence,))
    assert (session.expires_at, session.beats, session.held) == (now + MINUTE, 1, 1)


async def test_a_session_that_ended_cannot_renew(scene: Scene) -> None:
    worker = await scene.worker()
    await scene.store.end_session(worker)

    assert not (await scene.store.renew(worker, stopping=False)).alive
    assert not (await scene.store.renew(SessionId("w_nope"), stopping=False)).alive


async def test_a_session_is_reaped_only_after_its_lease_by_the_store_s_clock(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker(lease=MINUTE)
    await scene.claim(worker)

    scene.advance(MINUTE)
    early, _ = await scene.store.reap({worker: 0})
    scene.advance(TICK)
    gone, wakes = await scene.store.reap({worker: 0})

    assert (early, gone) == (frozenset(), frozenset({worker}))
    assert wakes.times
    assert await scene.state(run) is RunState.SCHEDULED
    assert await scene.store.sessions(alive_only=True) == []


async def test_a_session_whose_beats_moved_on_is_not_reaped(scene: Scene) -> None:
    worker = await scene.worker(lease=MINUTE)
    await scene.store.renew(worker, stopping=False)
    scene.advance(2 * MINUTE)

    gone, _ = await scene.store.reap({worker: 0})

    assert gone == frozenset()


async def test_only_the_sessions_asked_for_are_reaped(scene: Scene) -> None:
    first = await scene.worker("first", lease=MINUTE)
    await scene.worker("second", lease=MINUTE)
    scene.advance(2 * MINUTE)

    gone, _ = await scene.store.reap({first: 0})

    assert gone == {first}


async def test_a_reaped_session_is_fenced(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker(lease=MINUTE)
    [work] = await scene.claim(worker)
    scene.advance(2 * MINUTE)
    await scene.store.reap({worker: 0})

    assert not (await scene.store.renew(worker, stopping=False)).alive
    assert (await scene.start(worker, [work])).refused == (work.fence,)
    assert (await scene.finish(worker, [work])).fenced == (work.fence,)


async def test_a_worker_whose_predecessor_is_gone_takes_over_at_once(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    old = await scene.worker("w1")
    other = await scene.worker("w2")
    await scene.claim(old)

    new, wakes = await scene.store.register(hello("w1", predecessor_is_gone=True), MINUTE)

    alive = {session.id for session in await scene.store.sessions(alive_only=True)}
    assert (alive, wakes.times) == ({new.id, other}, True)
    assert await scene.state(run) is RunState.SCHEDULED


async def test_a_worker_of_the_same_name_inherits_nothing_without_proof(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    old = await scene.worker("w1")
    [work] = await scene.claim(old)

    await scene.worker("w1")

    assert (await scene.store.renew(old, stopping=False)).held == (work.fence,)


async def test_goodbye_twice_is_harmless(scene: Scene) -> None:
    worker = await scene.worker()

    await scene.store.end_session(worker)
    await scene.store.end_session(worker)

    [session] = await scene.store.sessions(alive_only=False)
    assert not session.alive
