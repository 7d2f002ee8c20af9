"""Sessions: workers that arrive, renew, connect anew, are drained, leave and vanish."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rota.domain.errors import NotFound, StaleStream
from rota.domain.ids import SessionId
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Heartbeat, Session
from rota.ports.work import Hello, Offer, WorkBatch
from testkit.builders import LEASE, MINUTE, Scene, hello, outcome, reported

pytestmark = pytest.mark.anyio
TICK = timedelta(microseconds=1)
MONTHS = timedelta(days=90)


async def test_a_worker_that_registers_has_a_lease(scene: Scene) -> None:
    session = await scene.store.register(
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


async def test_what_a_worker_offers_is_known_by_its_latest_hello(scene: Scene) -> None:
    wall, shell = Offer("wall", "landlock", "the kernel has none"), Offer("type", "shell")
    session = await scene.store.register(hello(offers=(shell, wall)), LEASE)

    resumed = await scene.store.resume(hello(resumes=session.id, offers=(shell,)), "s_2")

    assert session.offers == (shell, wall)
    assert resumed is not None
    assert resumed.offers == (shell,)


async def test_what_a_worker_cannot_do_is_known_until_it_can(scene: Scene) -> None:
    worker = await scene.worker()

    told = []
    for trouble in ("", "no output gets through", "no output gets through", ""):
        await scene.store.renew(worker, stopping=False, trouble=trouble)
        told += [each.trouble for each in await scene.store.sessions(alive_only=True)]

    assert told == ["", "no output gets through", "no output gets through", ""]


async def test_a_session_that_ended_cannot_renew(scene: Scene) -> None:
    worker = await scene.worker()
    await scene.store.end_session(worker)

    assert not (await scene.store.renew(worker, stopping=False)).alive
    assert not (await scene.store.renew(SessionId("w_nope"), stopping=False)).alive


async def test_a_session_is_reaped_only_after_its_lease_by_the_store_s_clock(
    scene: Scene, published: list[Wakes]
) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker(lease=MINUTE)
    await scene.claim(worker)

    scene.advance(MINUTE)
    early = await scene.store.reap({worker: 0})
    scene.advance(TICK)
    gone = await scene.store.reap({worker: 0})
    wakes = published[-1]

    assert (early, gone) == (frozenset(), frozenset({worker}))
    assert wakes.times
    assert await scene.state(run) is RunState.SCHEDULED
    assert await scene.store.sessions(alive_only=True) == []


async def test_a_session_whose_beats_moved_on_is_not_reaped(scene: Scene) -> None:
    worker = await scene.worker(lease=MINUTE)
    await scene.store.renew(worker, stopping=False)
    scene.advance(2 * MINUTE)

    gone = await scene.store.reap({worker: 0})

    assert gone == frozenset()


async def test_only_the_sessions_asked_for_are_reaped(scene: Scene) -> None:
    first = await scene.worker("first", lease=MINUTE)
    await scene.worker("second", lease=MINUTE)
    scene.advance(2 * MINUTE)

    gone = await scene.store.reap({first: 0})

    assert gone == {first}


async def test_a_reaped_session_is_fenced(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker(lease=MINUTE)
    [work] = await scene.claim(worker)
    scene.advance(2 * MINUTE)
    await scene.store.reap({worker: 0})

    assert not (await scene.store.renew(worker, stopping=False)).alive
    assert (await scene.start(worker, [work])).refused == (work.fence,)
    assert (await scene.finish(worker, [work])).refused == (work.fence,)


async def test_a_worker_whose_predecessor_is_gone_takes_over_at_once(
    scene: Scene, published: list[Wakes]
) -> None:
    [run] = await scene.trigger(await scene.job())
    old = await scene.worker("w1")
    other = await scene.worker("w2")
    await scene.claim(old)

    new = await scene.store.register(hello("w1", succeeds=old), MINUTE)
    wakes = published[-1]

    alive = {session.id for session in await scene.store.sessions(alive_only=True)}
    assert (alive, wakes.times) == ({new.id, other}, True)
    assert await scene.state(run) is RunState.SCHEDULED


async def test_a_worker_succeeds_only_the_session_that_it_names(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    twin, old = await scene.worker("w1"), await scene.worker("w1")
    [work] = await scene.claim(twin)

    new = await scene.store.register(hello("w1", succeeds=old), MINUTE)

    alive = {session.id for session in await scene.store.sessions(alive_only=True)}
    assert alive == {twin, new.id}
    assert (await scene.store.renew(twin, stopping=False)).held == (work.fence,)


async def test_nobody_succeeds_a_worker_of_another_name(scene: Scene) -> None:
    other = await scene.worker("w2")

    await scene.store.register(hello("w1", succeeds=other), MINUTE)

    assert (await scene.store.renew(other, stopping=False)).alive


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


async def test_the_heartbeats_of_all_live_sessions_are_known(scene: Scene) -> None:
    silent, beating = await scene.worker("silent"), await scene.worker("beating", lease=MINUTE)
    await scene.store.end_session(await scene.worker("gone"))
    await scene.store.renew(beating, stopping=False)

    hearts = {each.session: each for each in await scene.store.heartbeats()}

    assert hearts == {silent: Heartbeat(silent, 0, LEASE), beating: Heartbeat(beating, 1, MINUTE)}


class TestForgetting:
    """Workers come and go for years; those that went long ago are of no use."""

    async def test_a_session_is_forgotten_three_months_after_its_lease(self, scene: Scene) -> None:
        gone = await scene.worker(lease=MINUTE)
        await scene.store.end_session(gone)
        scene.advance(MONTHS + MINUTE)
        early = await scene.store.forget_sessions(10)

        scene.advance(TICK)

        assert (early, await scene.store.forget_sessions(10)) == (0, 1)
        assert await scene.store.sessions(alive_only=False) == []

    async def test_no_more_are_forgotten_than_asked_for(self, scene: Scene) -> None:
        for number in range(3):
            await scene.store.end_session(await scene.worker(f"gone-{number}"))
        scene.advance(2 * MONTHS)

        assert [await scene.store.forget_sessions(2) for _ in range(2)] == [2, 1]

    async def test_who_is_not_settled_is_remembered(self, scene: Scene) -> None:
        silent = await scene.worker("silent")  # alive until somebody reaps it
        await scene.worker("drained")
        await scene.store.drain_worker("drained", actor="operator")
        [drained] = [each for each in await scene.store.heartbeats() if each.session != silent]
        await scene.store.end_session(drained.session)
        scene.advance(2 * MONTHS)

        assert await scene.store.forget_sessions(10) == 0
        await scene.store.undrain_worker("drained", actor="operator")
        assert await scene.store.forget_sessions(10) == 1

    async def test_the_history_of_its_runs_stays(self, scene: Scene) -> None:
        [run] = await scene.trigger(await scene.job())
        worker = await scene.worker()
        await scene.finish(worker, await scene.claim(worker))
        await scene.store.end_session(worker)
        scene.advance(2 * MONTHS)

        assert await scene.store.forget_sessions(10) == 1
        assert await scene.state(run) is RunState.COMPLETED
        assert [each.session for each in await scene.store.attempts(run)] == [worker]


async def arrived(scene: Scene, server: str = "s_1") -> Session:
    return await scene.store.register(hello(), MINUTE, server)


async def test_a_worker_that_comes_back_has_the_next_stream_at_its_new_server(
    scene: Scene,
) -> None:
    first = await arrived(scene)
    now = scene.advance(MINUTE / 2)

    resumed = await scene.store.resume(hello(resumes=first.id), "s_2")

    assert resumed is not None
    assert (first.stream, first.server) == (1, "s_1")
    assert (resumed.id, resumed.stream, resumed.server) == (first.id, 2, "s_2")
    assert (resumed.beats, resumed.expires_at) == (1, now + MINUTE)


async def test_a_session_keeps_its_lease_whatever_a_server_gives_to_new_ones(scene: Scene) -> None:
    first = await scene.store.register(hello(), MINUTE)

    longer = hello(resumes=first.id, offers=(Offer("lease", "7200"), Offer("type", "shell")))
    resumed = await scene.store.resume(longer, "s_2")

    assert resumed is not None
    assert resumed.lease == MINUTE
    assert resumed.offers == (Offer("lease", "60"), Offer("type", "shell"))


async def test_a_session_that_is_over_is_not_resumed(scene: Scene) -> None:
    session = await arrived(scene)
    await scene.store.end_session(session.id)

    assert await scene.store.resume(hello(resumes=session.id), "s_2") is None
    assert await scene.store.resume(hello(resumes="w_nope"), "s_2") is None


@pytest.mark.parametrize("other", [hello("other"), hello(pool="other")])
async def test_a_session_is_resumed_by_its_own_worker_in_its_own_pool_only(
    scene: Scene, other: Hello
) -> None:
    session = await arrived(scene)

    resumed = await scene.store.resume(replace(other, resumes=session.id), "s_2")

    assert resumed is None
    assert (await scene.store.renew(session.id, stopping=False)).stream == 1


async def test_a_former_server_claims_nothing(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    session = await arrived(scene)
    await scene.store.resume(hello(resumes=session.id), "s_2")

    with pytest.raises(StaleStream):
        await scene.claim(session.id, stream=1)

    assert await scene.state(run) is RunState.QUEUED
    [work] = await scene.claim(session.id, stream=2)
    assert work.run == run


async def test_a_former_server_s_report_counts_but_claims_nothing(scene: Scene) -> None:
    first, second = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 2)
    session = await arrived(scene)
    [work] = await scene.claim(session.id, 1)
    await scene.store.resume(hello(resumes=session.id), "s_2")

    finished = await scene.store.finish(session.id, reported(outcome(work)), claim=10, stream=1)

    assert (finished.refused, finished.claimed) == ((), WorkBatch())
    assert await scene.states([first, second]) == [RunState.COMPLETED, RunState.QUEUED]


async def test_a_renewal_tells_the_latest_stream(scene: Scene) -> None:
    session = await arrived(scene)
    before = await scene.store.renew(session.id, stopping=False)
    await scene.store.resume(hello(resumes=session.id), "s_2")

    after = await scene.store.renew(session.id, stopping=False)

    assert (before.stream, after.stream) == (1, 2)


async def test_a_drained_worker_keeps_what_it_holds_and_gets_nothing_new(scene: Scene) -> None:
    await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 3)
    worker = await scene.worker("w1")
    [work] = await scene.claim(worker, 1)

    await scene.store.drain_worker("w1", actor="operator")

    renewal = await scene.store.renew(worker, stopping=False)
    assert (renewal.alive, renewal.held, renewal.draining) == (True, (work.fence,), True)
    assert await scene.claim(worker) == []
    finished = await scene.store.finish(worker, reported(outcome(work)), claim=10)
    assert (finished.refused, finished.claimed) == ((), WorkBatch())


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
