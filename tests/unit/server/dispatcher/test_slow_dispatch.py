"""Between the claim and the dispatch the definition is read, which may take many beats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.ids import SessionId
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec, Overlap
from rota.domain.states import RunState
from rota.operations.engine import Engine
from rota.operations.specs import Ref, SpecCache
from rota.ports.records import RunQuery
from rota.ports.store import Store
from rota.ports.work import Beat, Dispatch, Fence, Move, Order, Welcome, Work
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import Scene, hello, outcome, reported

pytestmark = pytest.mark.anyio


class SlowSpecs(SpecCache):
    """Finds specs only when a test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.allowed = asyncio.Event()

    async def find(self, store: Store, refs: Collection[Ref]) -> dict[Ref, JobSpec]:
        self.asked.set()
        await self.allowed.wait()
        return await super().find(store, refs)


@pytest.fixture
def specs() -> SlowSpecs:
    return SlowSpecs()


@pytest.fixture
def floor(engine: Engine, specs: SlowSpecs) -> Floor:
    return Floor(replace(engine, specs=specs))


@asynccontextmanager
async def claim_under_way(floor: Floor, specs: SlowSpecs, welcome: Welcome) -> AsyncIterator[None]:
    """A claim that is done in the store; it is dispatched at the end."""
    claim = asyncio.create_task(floor.claim_for(welcome.session))
    async with asyncio.timeout(10):
        await specs.asked.wait()
        yield
        specs.allowed.set()
        await claim


async def dispatched(floor: Floor, welcome: Welcome) -> tuple[Work, ...]:
    order = await floor.next_order(welcome.session, welcome.stream)
    assert isinstance(order, Dispatch)
    return tuple(order.batch.works())


@asynccontextmanager
async def orders(floor: Floor, welcome: Welcome) -> AsyncIterator[list[Order]]:
    """What is sent to a worker meanwhile."""
    taken: list[Order] = []

    async def take() -> None:
        while True:
            taken.append(await floor.next_order(welcome.session, welcome.stream))

    taking = asyncio.create_task(take())
    yield taken
    taking.cancel()
    await asyncio.wait([taking])


async def test_what_is_not_on_its_way_yet_is_not_lost(
    scene: Scene, floor: Floor, specs: SlowSpecs
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())

    async with claim_under_way(floor, specs, welcome):
        for _ in range(3):
            await floor.beat(welcome.session, Beat())
    await floor.beat(welcome.session, Beat())

    assert [each.result for each in await scene.store.attempts(run)] == [None]
    assert [work.run for work in await dispatched(floor, welcome)] == [run]


async def test_what_reached_a_worker_and_is_missing_is_lost(
    scene: Scene, floor: Floor, specs: SlowSpecs
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())
    async with claim_under_way(floor, specs, welcome):
        pass
    await dispatched(floor, welcome)
    before = Beat(received=0, stream=welcome.stream)

    for _ in range(3):
        await floor.beat(welcome.session, before)
    assert [each.result for each in await scene.store.attempts(run)] == [None]
    await floor.beat(welcome.session, Beat(received=1, stream=welcome.stream))

    assert [each.result for each in await scene.store.attempts(run)] == [AttemptResult.LOST]


async def test_what_waits_for_a_slow_stream_is_not_lost(
    scene: Scene, floor: Floor, specs: SlowSpecs
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())

    async with claim_under_way(floor, specs, welcome):
        pass
    for beat in (Beat(), Beat(), Beat(received=0), Beat(received=9)):
        await floor.beat(welcome.session, beat)

    assert [work.run for work in await dispatched(floor, welcome)] == [run]


async def test_what_was_taken_back_meanwhile_is_not_sent(
    scene: Scene, floor: Floor, specs: SlowSpecs
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())

    async with claim_under_way(floor, specs, welcome):
        await scene.store.lose(SessionId(welcome.session), [Fence(run, 1)])
        await floor.beat(welcome.session, Beat())

    assert await dispatched(floor, welcome) == ()


async def test_what_is_taken_back_while_it_waits_for_the_stream_is_not_sent(
    scene: Scene, floor: Floor, specs: SlowSpecs
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())

    async with claim_under_way(floor, specs, welcome):
        pass
    await scene.store.lose(SessionId(welcome.session), [Fence(run, 1)])
    await floor.beat(welcome.session, Beat())

    assert await dispatched(floor, welcome) == ()


async def test_the_rest_of_what_was_taken_back_is_sent_and_counted(
    scene: Scene, floor: Floor, specs: SlowSpecs
) -> None:
    first, second, third = await scene.trigger(await scene.job(), 3)
    welcome = await floor.register(hello())
    specs.allowed.set()
    await floor.claim_for(welcome.session)
    await scene.store.lose(SessionId(welcome.session), [Fence(second, 1)])
    await floor.beat(welcome.session, Beat())

    assert [work.run for work in await dispatched(floor, welcome)] == [first, third]

    await floor.beat(welcome.session, Beat(received=1, held=(Fence(first, 1),)))
    assert [each.result for each in await scene.store.attempts(third)] == [None]
    await floor.beat(welcome.session, Beat(received=2, held=(Fence(first, 1),)))
    assert [each.result for each in await scene.store.attempts(third)] == [AttemptResult.LOST]


async def test_a_claim_whose_answer_was_lost_is_given_again_although_others_go_on(
    scene: Scene, floor: Floor, specs: SlowSpecs
) -> None:
    [mislaid] = await scene.trigger(await scene.job("mislaid"))
    welcome = await floor.register(hello(slots=2))
    await scene.store.claim(SessionId(welcome.session), 1)
    await scene.trigger(await scene.job("other"))

    async with claim_under_way(floor, specs, welcome):
        await floor.beat(welcome.session, Beat())
    [other] = await dispatched(floor, welcome)
    for _ in range(2):
        await floor.beat(welcome.session, Beat(held=(other.fence,)))

    assert [each.message for each in await scene.store.attempts(mislaid)] == [
        "it never reached its worker"
    ]


class TestRetiring:
    """A server that stops sends what it has claimed, and claims no more."""

    async def test_it_waits_for_a_claim_under_way_and_until_it_is_sent(
        self, scene: Scene, floor: Floor, specs: SlowSpecs
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        welcome = await floor.register(hello())

        async with claim_under_way(floor, specs, welcome):
            retiring = asyncio.create_task(floor.retire())
            await floor.beat(welcome.session, Beat())
        assert not retiring.done()
        work = await dispatched(floor, welcome)
        await floor.beat(welcome.session, Beat(held=tuple(each.fence for each in work)))
        assert not retiring.done()  # it was asked for, which is not yet sent
        async with orders(floor, welcome) as rest:
            await asyncio.wait_for(retiring, 10)

        assert [each.run for each in work] == [run]
        assert rest == [Move()]

    async def test_nothing_more_is_claimed_whoever_asks(
        self, scene: Scene, floor: Floor, specs: SlowSpecs
    ) -> None:
        specs.allowed.set()
        job = await scene.job(overlap=Overlap.ALLOW)
        [first] = await scene.trigger(job)
        welcome = await floor.register(hello())
        await floor.claim_for(welcome.session)
        await dispatched(floor, welcome)
        await floor.disconnected(welcome.session, welcome.stream)
        again = await floor.register(hello(resumes=welcome.session))
        await scene.trigger(job)

        async with orders(floor, again):
            await floor.retire()
        await floor.beat(again.session, Beat(held=(Fence(first, 1),)))
        await floor.report(again.session, reported(outcome(Fence(first, 1))))
        late = await floor.register(hello("late"))
        claims = [await floor.claim_for(each.session) for each in (again, late)]

        assert claims == [0, 0]
        assert len(await scene.store.runs(RunQuery(states=(RunState.QUEUED,)))) == 1

    async def test_a_worker_that_has_gone_is_not_waited_for(
        self, scene: Scene, floor: Floor, specs: SlowSpecs
    ) -> None:
        specs.allowed.set()
        await scene.trigger(await scene.job())
        welcome = await floor.register(hello())
        await floor.claim_for(welcome.session)

        retiring = asyncio.create_task(floor.retire())
        await floor.beat(welcome.session, Beat())
        assert not retiring.done()
        await floor.disconnected(welcome.session, welcome.stream)

        await asyncio.wait_for(retiring, 1)

    async def test_what_cannot_be_sent_is_waited_for_only_so_long(
        self, scene: Scene, engine: Engine
    ) -> None:
        floor = Floor(engine, FloorConfig(retire_within=timedelta(0)))
        await scene.trigger(await scene.job())
        welcome = await floor.register(hello())
        await floor.claim_for(welcome.session)

        await asyncio.wait_for(floor.retire(), 10)


async def test_a_job_that_was_known_is_told_again_if_that_was_forgotten_meanwhile(
    scene: Scene, engine: Engine, specs: SlowSpecs
) -> None:
    floor = Floor(replace(engine, specs=specs), FloorConfig(known_specs=2))
    welcome = await floor.register(hello(slots=10))
    jobs = [await scene.job(name, overlap=Overlap.ALLOW) for name in "abcd"]
    specs.allowed.set()
    await scene.trigger(jobs[0])
    await floor.claim_for(welcome.session)
    specs.allowed.clear()
    specs.asked.clear()

    await scene.trigger(jobs[0])
    await scene.trigger(jobs[1])
    async with claim_under_way(floor, specs, welcome):
        await scene.trigger(jobs[2])
        await scene.trigger(jobs[3])
        other = asyncio.create_task(floor.claim_for(welcome.session))
        await asyncio.wait([other], timeout=0.05)
    await other

    runs = await scene.store.runs(RunQuery())
    assert {run.state for run in runs} == {RunState.CLAIMED}
