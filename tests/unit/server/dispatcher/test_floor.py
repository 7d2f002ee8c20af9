"""A server's book about its workers, and how it is put right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rota.domain.errors import (
    Invalid,
    LockedTooLong,
    NotFound,
    RotaError,
    StaleStream,
    StaleTransition,
)
from rota.domain.ids import JobId, SessionId
from rota.domain.spec import Delivery, Overlap
from rota.domain.states import RunState
from rota.operations.engine import Engine
from rota.ports.records import RunQuery
from rota.ports.work import (
    Beat,
    ChunkMeta,
    Dispatch,
    Fence,
    OutputChunk,
    Progress,
    ReportAnswer,
    Start,
    Welcome,
)
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import Scene, hello, outcome, reported

pytestmark = pytest.mark.anyio


async def moved_to(floor: Floor, welcome: Welcome) -> Welcome:
    """The worker of a session connects anew, to this server."""
    return await floor.register(hello(resumes=welcome.session))


async def test_slots_of_attempts_that_ended_elsewhere_are_free_after_a_beat(
    scene: Scene, floor: Floor
) -> None:
    job = await scene.job(overlap=Overlap.ALLOW)
    first, _ = await scene.trigger(job, 2)
    welcome = await floor.register(hello(slots=1))
    await floor.claim_for(welcome.session)
    await scene.store.finish(SessionId(welcome.session), reported(outcome(Fence(first, 1))))
    before = await floor.claim_for(welcome.session)

    await floor.beat(welcome.session, Beat())

    assert before == 0
    assert await floor.claim_for(welcome.session) == 1


async def test_nobody_is_given_the_label_that_is_a_worker_s_name(floor: Floor) -> None:
    with pytest.raises(Invalid) as refused:
        await floor.register(hello("web-1", labels={"worker": "web-2"}))

    assert refused.value.code == "reserved_label"
    assert (await floor.register(hello("web-1", labels={"worker": "web-1"}))).session


async def test_the_trouble_of_a_worker_is_known_by_its_latest_beat(
    scene: Scene, floor: Floor
) -> None:
    welcome = await floor.register(hello())

    told = []
    for trouble in ("no output\0 gets\n through", "x" * 9_999, ""):
        await floor.beat(welcome.session, Beat(trouble=trouble))
        told += [each.trouble for each in await scene.store.sessions(alive_only=True)]

    assert told == ["no output gets through", "x" * 1_000, ""]


async def test_an_answer_names_only_what_was_refused(scene: Scene, floor: Floor) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())
    await floor.claim_for(welcome.session)
    mine, foreign = Fence(run, 1), Fence(run, 2**32 + 1)

    answer = await floor.report(welcome.session, reported(outcome(mine), outcome(foreign)))

    assert answer == ReportAnswer(refused=(foreign,))


class TestEndThatCouldNotBeReported:
    @pytest.mark.parametrize(
        ("delivery", "state"),
        [(Delivery.AT_LEAST_ONCE, RunState.CLAIMED), (Delivery.AT_MOST_ONCE, RunState.UNKNOWN)],
    )
    async def test_its_attempt_is_lost_and_what_comes_late_of_it_changes_nothing(
        self, scene: Scene, floor: Floor, delivery: Delivery, state: RunState
    ) -> None:
        [run] = await scene.trigger(await scene.job(delivery=delivery))
        welcome, fence = await floor.register(hello(slots=1)), Fence(run, 1)
        await floor.claim_for(welcome.session)
        await floor.next_order(welcome.session, 1)
        await floor.start(welcome.session, [Start(run, 1, 1)])

        await floor.beat(welcome.session, Beat(given_up=(fence,), received=1))
        await scene.release()
        late = await floor.report(welcome.session, reported(outcome(fence)))

        [lost, *_] = await scene.store.attempts(run)
        assert late == ReportAnswer(refused=(fence,))
        assert (lost.result, lost.message) == ("LOST", "its worker could not report its end")
        assert (await scene.state(run), (await scene.show(run)).losses) == (state, 1)

    async def test_what_is_held_or_another_s_is_not_given_up(
        self, scene: Scene, floor: Floor
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        welcome, fence = await floor.register(hello()), Fence(run, 1)
        stranger = await floor.register(hello("stranger"))
        await floor.claim_for(welcome.session)
        await floor.next_order(welcome.session, 1)

        await floor.beat(stranger.session, Beat(given_up=(fence,)))
        await floor.beat(welcome.session, Beat(held=(fence,), given_up=(fence,), received=1))

        assert await scene.state(run) is RunState.CLAIMED

    @pytest.mark.parametrize("error", [LockedTooLong("later"), StaleTransition("odd")], ids=repr)
    async def test_a_run_that_cannot_be_lost_now_costs_its_worker_no_lease(
        self,
        scene: Scene,
        engine: Engine,
        floor: Floor,
        monkeypatch: pytest.MonkeyPatch,
        error: RotaError,
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        welcome = await floor.register(hello())
        await floor.claim_for(welcome.session)
        await floor.next_order(welcome.session, 1)

        async def refuse(*_: object, **__: object) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(type(engine.store), "lose", refuse)
            answer = await floor.beat(welcome.session, Beat(given_up=(Fence(run, 1),), received=1))
        between = await scene.state(run)
        await floor.beat(welcome.session, Beat(received=1))

        assert answer.alive
        assert between is RunState.CLAIMED
        assert [each.result for each in await scene.store.attempts(run)] == ["LOST"]


class TestMovedWorker:
    async def test_its_session_names_the_new_server(self, engine: Engine, floor: Floor) -> None:
        welcome = await floor.register(hello())

        again = await moved_to(Floor(engine, server="s_2"), welcome)

        [session] = await engine.store.sessions(alive_only=True)
        assert (again.session, again.stream) == (welcome.session, 2)
        assert (session.server, session.stream) == ("s_2", 2)

    async def test_its_former_server_cannot_claim_for_it(
        self, scene: Scene, engine: Engine, floor: Floor
    ) -> None:
        await scene.trigger(await scene.job())
        welcome = await floor.register(hello())
        await moved_to(Floor(engine), welcome)

        with pytest.raises(StaleStream):
            await floor.claim_for(welcome.session)

    async def test_its_former_server_gives_up_its_desk(
        self, scene: Scene, engine: Engine, floor: Floor
    ) -> None:
        welcome = await floor.register(hello())
        await moved_to(Floor(engine), welcome)

        with pytest.raises(NotFound):
            await floor.beat(welcome.session, Beat())

        with pytest.raises(NotFound):
            await floor.next_order(welcome.session, welcome.stream)

    async def test_a_beat_from_a_former_connection_says_nothing_about_the_latest(
        self, scene: Scene, floor: Floor
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        first = await floor.register(hello())
        await floor.claim_for(first.session)
        await moved_to(floor, first)

        with pytest.raises(NotFound, match="another connection"):
            await floor.beat(first.session, Beat(stream=first.stream))

        assert [each.result for each in await scene.store.attempts(run)] == [None]

    async def test_a_claim_that_is_stale_ends_the_desk(self, engine: Engine, floor: Floor) -> None:
        welcome = await floor.register(hello())
        await moved_to(Floor(engine), welcome)
        serving = asyncio.create_task(floor.run())

        async with asyncio.timeout(10):
            with pytest.raises(NotFound):
                await floor.next_order(welcome.session, welcome.stream)

        serving.cancel()
        await asyncio.wait([serving])

    async def test_a_former_connection_to_the_same_server_takes_no_orders(
        self, scene: Scene, floor: Floor
    ) -> None:
        welcome = await floor.register(hello())
        waiting = asyncio.ensure_future(floor.next_order(welcome.session, welcome.stream))
        again = await moved_to(floor, welcome)
        await floor.beat(again.session, Beat())
        await scene.trigger(await scene.job())

        await floor.claim_for(welcome.session)

        with pytest.raises(NotFound):
            await waiting
        with pytest.raises(NotFound):
            await floor.next_order(welcome.session, welcome.stream)
        assert isinstance(await floor.next_order(again.session, again.stream), Dispatch)

    async def test_the_end_of_a_former_connection_does_not_concern_the_latest(
        self, floor: Floor
    ) -> None:
        welcome = await floor.register(hello())
        await moved_to(floor, welcome)

        await floor.disconnected(welcome.session, welcome.stream)

        assert (await floor.beat(welcome.session, Beat())).alive


class TestResumedWorker:
    async def test_what_never_reached_it_is_given_again_with_its_first_beat(
        self, scene: Scene, engine: Engine, floor: Floor
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        welcome = await floor.register(hello())
        await floor.claim_for(welcome.session)
        other = Floor(engine)
        await moved_to(other, welcome)

        await other.beat(welcome.session, Beat())

        assert [each.message for each in await scene.store.attempts(run)] == [
            "it never reached its worker"
        ]

    async def test_what_it_holds_stays_its_own(
        self, scene: Scene, engine: Engine, floor: Floor
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        welcome = await floor.register(hello())
        await floor.claim_for(welcome.session)
        other = Floor(engine)
        await moved_to(other, welcome)

        answer = await other.beat(welcome.session, Beat(held=(Fence(run, 1),)))

        assert answer.unknown == ()
        assert await other.claim_for(welcome.session) == 0

    async def test_nothing_is_claimed_for_it_before_it_has_said_what_it_holds(
        self, scene: Scene, floor: Floor
    ) -> None:
        welcome = await floor.register(hello())
        await moved_to(floor, welcome)
        await scene.trigger(await scene.job())

        before = await floor.claim_for(welcome.session)
        await floor.beat(welcome.session, Beat())

        assert (before, await floor.claim_for(welcome.session)) == (0, 1)


class TestSpecs:
    async def told(
        self, scene: Scene, floor: Floor, welcome: Welcome, jobs: Sequence[JobId]
    ) -> set[str]:
        """The jobs whose specs a worker is told together with a run of each."""
        runs = [run for job in jobs for run in await scene.trigger(job)]
        await floor.claim_for(welcome.session)
        order = await floor.next_order(welcome.session, welcome.stream)
        assert isinstance(order, Dispatch)
        await floor.report(welcome.session, reported(*(outcome(Fence(run, 1)) for run in runs)))
        return {entry.spec.name for entry in order.specs}

    async def test_a_worker_is_thought_to_know_only_as_many_as_it_remembers(
        self, scene: Scene, engine: Engine
    ) -> None:
        jobs = {name: await scene.job(name) for name in "abc"}
        floor = Floor(engine, FloorConfig(known_specs=2))
        welcome = await floor.register(hello(slots=2))

        told = [
            await self.told(scene, floor, welcome, [jobs[name] for name in names])
            for names in ("a", "b", "ab", "ac", "ac")
        ]

        assert told == [{"a"}, {"b"}, set(), {"a", "c"}, set()]


class TestDrainedWorker:
    async def test_a_beat_tells_it(self, scene: Scene, floor: Floor) -> None:
        welcome = await floor.register(hello("w1"))
        await scene.store.drain_worker("w1", actor="operator")
        drained = await floor.beat(welcome.session, Beat())

        await scene.store.undrain_worker("w1", actor="operator")
        undrained = await floor.beat(welcome.session, Beat())

        assert (drained.draining, undrained.draining) == (True, False)

    async def test_it_gets_work_as_soon_as_it_is_resumed(self, scene: Scene, floor: Floor) -> None:
        await scene.trigger(await scene.job())
        welcome = await floor.register(hello("w1"))
        await scene.store.drain_worker("w1", actor="operator")
        await floor.beat(welcome.session, Beat())
        while_drained = await floor.claim_for(welcome.session)

        await scene.store.undrain_worker("w1", actor="operator")

        assert while_drained == 0
        assert await floor.claim_for(welcome.session) == 1


class TestForgedActs:
    """A worker acts on attempts that another one has: refused, and in the history."""

    @pytest.mark.parametrize("act", ["start", "report", "output"])
    async def test_an_act_with_a_foreign_fence_is_refused_and_seen(
        self, scene: Scene, floor: Floor, act: str
    ) -> None:
        await scene.trigger(await scene.job())
        victim = await scene.worker("victim")
        [work] = await scene.claim(victim)
        thief = await floor.register(hello("thief"))

        refused = await self.forge(floor, thief.session, act, work.fence)

        event = (await scene.store.events(0, 100))[-1]
        assert refused == (work.fence,)
        assert (event.kind, event.actor, event.ids) == (
            "worker.refused",
            "thief",
            (thief.session,),
        )
        assert (event.data["act"], event.data["attempts"]) == (act, [f"{work.run}/1"])

    async def test_forged_progress_is_ignored_and_seen_once_a_minute(
        self, scene: Scene, floor: Floor
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        victim = await scene.worker("victim")
        [work] = await scene.claim(victim)
        thief = await floor.register(hello("thief"))

        for _ in range(3):
            await floor.progress(thief.session, [Progress(work.run, work.number, 9, 9)])

        told = await scene.store.events(0, 100)
        refused = [event for event in told if event.kind == "worker.refused"]
        assert [(event.actor, event.data["act"]) for event in refused] == [("thief", "progress")]
        assert refused[0].data["attempts"] == [f"{work.run}/1"]
        [shown] = await scene.store.runs(RunQuery(ids=[run]))
        assert shown.progress is None

    async def test_late_progress_is_no_forgery(self, scene: Scene, floor: Floor) -> None:
        await scene.trigger(await scene.job())
        worker = await floor.register(hello("w1"))
        [work] = await scene.claim(SessionId(worker.session))
        await scene.store.lose(SessionId(worker.session), [work.fence])

        await floor.progress(worker.session, [Progress(work.run, work.number, 1, 2)])

        kinds = {event.kind for event in await scene.store.events(0, 100)}
        assert "worker.refused" not in kinds

    async def forge(self, floor: Floor, session: str, act: str, fence: Fence) -> tuple[Fence, ...]:
        match act:
            case "start":
                return (await floor.start(session, [Start(fence.run, fence.number, 1)])).refused
            case "report":
                return (await floor.report(session, reported(outcome(fence, at=1)))).refused
            case _:
                chunk = OutputChunk(fence.run, fence.number, ChunkMeta(0, 0, 1, 1, 1, 1), b"")
                return (await floor.output(session, [chunk])).refused
