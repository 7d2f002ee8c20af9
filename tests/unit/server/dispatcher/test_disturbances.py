"""What goes wrong with one worker is no concern of the others, nor of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from rota.domain.errors import LockedTooLong, NotFound
from rota.domain.ids import RunId, SessionId
from rota.operations.engine import Engine
from rota.ports.queue import CANCELLED
from rota.ports.records import Claimed
from rota.ports.store import Store
from rota.ports.work import Cancel, Dispatch, Fence, Order, Welcome
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import Scene, hello

pytestmark = pytest.mark.anyio

SOON = timedelta(milliseconds=20)


class DisturbedStore:
    """A store where something happens before it answers certain questions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before_cancels: dict[str, Callable[[], Awaitable[None]]] = {}  # by session
        self.held_up: dict[str, int] = {}  # claims of a session that are going to fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def cancels(self, session: SessionId) -> tuple[Fence, ...] | None:
        fences = await self._store.cancels(session)
        if session in self.before_cancels:
            await self.before_cancels[session]()
        return fences

    async def claim(self, session: SessionId, *wish: Any) -> Claimed:
        if self.held_up.get(session, 0):
            self.held_up[session] -= 1
            raise LockedTooLong("others are changing the same")
        return await self._store.claim(session, *wish)


@pytest.fixture
def store(scene: Scene) -> DisturbedStore:
    return DisturbedStore(scene.store)


@pytest.fixture
def floor(engine: Engine, store: DisturbedStore) -> Floor:
    disturbed = replace(engine, store=cast("Store", store))
    return Floor(disturbed, FloorConfig(poll_interval=SOON))


@asynccontextmanager
async def running(floor: Floor) -> AsyncIterator[None]:
    serving = asyncio.create_task(floor.run())
    try:
        async with asyncio.timeout(20):
            yield
        assert not serving.done()
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def next_order(floor: Floor, welcome: Welcome) -> Order:
    return await floor.next_order(welcome.session, welcome.stream)


async def start_one(scene: Scene, floor: Floor, welcome: Welcome) -> RunId:
    [run] = await scene.trigger(await scene.job())
    assert isinstance(await next_order(floor, welcome), Dispatch)
    return run


async def test_a_worker_that_goes_while_its_cancels_are_looked_up_disturbs_nobody(
    scene: Scene, engine: Engine, store: DisturbedStore, floor: Floor
) -> None:
    gone = await floor.register(hello("gone", pool="elsewhere"))
    staying = await floor.register(hello("staying"))
    store.before_cancels[gone.session] = lambda: floor.disconnected(gone.session, gone.stream)
    async with running(floor):
        run = await start_one(scene, floor, staying)
        await scene.store.cancel([run], actor="operator")

        engine.queue.announce(CANCELLED, gone.session)
        with pytest.raises(NotFound):
            await next_order(floor, gone)

        assert await next_order(floor, staying) == Cancel((Fence(run, 1),))


class TestClaimHeldUp:
    """Somebody holds a lock in the store that a claim needs."""

    async def test_it_is_tried_again(
        self, scene: Scene, store: DisturbedStore, floor: Floor
    ) -> None:
        [run] = await scene.trigger(await scene.job())
        welcome = await floor.register(hello())
        store.held_up[welcome.session] = 3

        with capture_logs() as told:
            async with running(floor):
                order = await next_order(floor, welcome)

        assert isinstance(order, Dispatch)
        assert [work.run for work in order.batch.works()] == [run]
        assert [line["event"] for line in told] == ["claim.held_up"]

    async def test_another_worker_is_fed_meanwhile(
        self, scene: Scene, store: DisturbedStore, floor: Floor
    ) -> None:
        unlucky = await floor.register(hello("unlucky"))
        store.held_up[unlucky.session] = 1_000_000
        lucky = await floor.register(hello("lucky"))
        async with running(floor):
            run = await start_one(scene, floor, lucky)

        assert [attempt.worker for attempt in await scene.store.attempts(run)] == ["lucky"]
