"""How tickets become claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

import pytest

from rota.domain.errors import LockedTooLong
from rota.domain.resources import UNIT
from rota.domain.spec import Overlap
from rota.operations.engine import Engine
from rota.ports.queue import FAVOURED, Ticket
from rota.ports.work import Beat, Dispatch, Fence, Welcome
from rota.queue.local import LocalQueue
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import Scene, hello, outcome, reported
from testkit.new_stores import connected

pytestmark = pytest.mark.anyio
NEVER = timedelta(hours=1)


class SoleTaker:
    """Hands out the tickets of a test, each to it alone, and notes what became of them."""

    def __init__(self) -> None:
        self.tickets: asyncio.Queue[Ticket] = asyncio.Queue()
        self.ends: asyncio.Queue[str] = asyncio.Queue()

    async def take(self, timeout: timedelta) -> Ticket | None:
        return await self.tickets.get()

    def done(self, ticket: Ticket) -> None:
        self.ends.put_nowait("done")

    def pass_on(self, ticket: Ticket) -> None:
        self.ends.put_nowait("passed on")

    def close(self) -> None:
        self.ends.put_nowait("closed")


class SoleQueue(LocalQueue):
    def __init__(self, taker: SoleTaker) -> None:
        super().__init__()
        self._taker = taker

    def takes(self, pool: str) -> SoleTaker:  # type: ignore[override]
        return self._taker


@pytest.fixture
def taker() -> SoleTaker:
    return SoleTaker()


@asynccontextmanager
async def fed(floor: Floor, **fields: object) -> AsyncIterator[Welcome]:
    """A worker that is kept supplied."""
    welcome = await floor.register(hello(**fields))  # type: ignore[arg-type]
    serving = asyncio.create_task(floor.run())
    try:
        async with asyncio.timeout(20):
            yield welcome
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def dispatched(floor: Floor, welcome: Welcome) -> list[str]:
    order = await floor.next_order(welcome.session, welcome.stream)
    assert isinstance(order, Dispatch)
    return [work.run for work in order.batch.works()]


async def hand_over(taker: SoleTaker, runs: Sequence[str] = ()) -> str:
    """What becomes of a ticket."""
    taker.tickets.put_nowait(Ticket(tuple(runs), is_sole=True))
    return await taker.ends.get()


def never_polling(engine: Engine) -> Floor:
    return Floor(engine, FloorConfig(poll_interval=NEVER))


async def test_an_offer_brings_work_without_a_poll(scene: Scene, engine: Engine) -> None:
    job = await scene.job()
    floor = never_polling(engine)
    async with fed(floor) as welcome:
        await floor.beat(welcome.session, Beat())

        submitted = await scene.submit(job)

        assert await dispatched(floor, welcome) == list(submitted.runs)


async def test_a_lost_offer_only_costs_a_poll(scene: Scene, engine: Engine) -> None:
    floor = Floor(engine, FloorConfig(poll_interval=timedelta(milliseconds=20)))
    async with fed(floor) as welcome:
        runs = await scene.trigger(await scene.job())

        assert await dispatched(floor, welcome) == runs


async def test_a_ticket_that_was_used_up_is_done(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    floor = never_polling(replace(engine, queue=connected(engine.store, SoleQueue(taker))))
    async with fed(floor) as welcome:
        runs = await scene.trigger(await scene.job())

        assert await hand_over(taker, runs) == "done"
        assert await dispatched(floor, welcome) == runs
        assert await hand_over(taker, runs) == "done"  # the same one again: stale


async def test_a_ticket_for_more_than_the_worker_has_room_for_is_passed_on(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    floor = never_polling(replace(engine, queue=connected(engine.store, SoleQueue(taker))))
    async with fed(floor, slots=2) as welcome:
        runs = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 3)

        assert await hand_over(taker, runs) == "passed on"
        assert len(await dispatched(floor, welcome)) == 2


async def test_a_ticket_for_runs_of_another_kind_is_passed_on(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    floor = never_polling(replace(engine, queue=connected(engine.store, SoleQueue(taker))))
    await scene.worker("far", labels={"site": "fra"})
    async with fed(floor):
        runs = await scene.trigger(await scene.job(needs={"site": "fra"}))

        assert await hand_over(taker, runs) == "passed on"


async def test_a_ticket_whose_claim_failed_is_passed_on(
    scene: Scene, engine: Engine, taker: SoleTaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> NoReturn:
        raise LockedTooLong("others are changing the same")

    floor = never_polling(replace(engine, queue=connected(engine.store, SoleQueue(taker))))
    async with fed(floor):
        assert await hand_over(taker) == "done"
        monkeypatch.setattr(scene.store, "claim", fail)

        assert await hand_over(taker, ["r_1"]) == "passed on"


async def test_a_ticket_without_names_is_passed_on_while_there_may_be_more(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    floor = never_polling(replace(engine, queue=connected(engine.store, SoleQueue(taker))))
    async with fed(floor, slots=2) as welcome:
        runs = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 3)

        assert await hand_over(taker) == "passed on"
        first = await dispatched(floor, welcome)
        await floor.report(welcome.session, reported(*(outcome(Fence(run, 1)) for run in first)))
        assert await dispatched(floor, welcome) == runs[2:]
        assert await hand_over(taker) == "done"


async def test_a_ticket_that_comes_while_the_server_stops_is_passed_on(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    floor = never_polling(replace(engine, queue=connected(engine.store, SoleQueue(taker))))
    async with fed(floor):
        assert await hand_over(taker) == "done"  # it waits from now on
        await floor.retire()

        assert await hand_over(taker) == "passed on"


async def test_a_run_that_fits_another_worker_better_is_given_to_that_one_at_once(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    here = replace(engine, queue=connected(engine.store, SoleQueue(taker)))
    floor, elsewhere = never_polling(here), never_polling(here)
    big = await elsewhere.register(hello("big", resources={"memory": 64 * UNIT}))
    async with fed(floor, resources={"memory": 4 * UNIT}) as small:
        assert await hand_over(taker) == "done"  # it waits from now on
        runs = await scene.trigger(await scene.job(resources={"memory": UNIT}))

        assert await elsewhere.claim_for(big.session) == 0
        assert await dispatched(floor, small) == runs


async def test_a_ticket_for_what_was_left_to_another_does_not_come_back(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    queue = connected(engine.store, SoleQueue(taker))
    floor = never_polling(replace(engine, queue=queue))
    listener = queue.listen(FAVOURED)
    small = await scene.worker("small", resources={"memory": 4 * UNIT})
    async with fed(floor, resources={"memory": 64 * UNIT}):
        runs = await scene.trigger(await scene.job(resources={"memory": UNIT}))

        assert await hand_over(taker, runs) == "done"
        assert await listener.wait(NEVER) == {small}


async def test_a_ticket_that_is_also_for_others_is_passed_on(
    scene: Scene, engine: Engine, taker: SoleTaker
) -> None:
    floor = never_polling(replace(engine, queue=connected(engine.store, SoleQueue(taker))))
    await scene.worker("small", resources={"memory": 4 * UNIT})
    await scene.worker("far", labels={"site": "fra"})
    async with fed(floor, resources={"memory": 64 * UNIT}):
        left = await scene.trigger(await scene.job(resources={"memory": UNIT}))
        far = await scene.trigger(await scene.job("far", needs={"site": "fra"}))

        assert await hand_over(taker, left + far) == "passed on"
