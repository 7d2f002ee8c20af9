"""Carts go on by themselves, in the shards of their server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rota.domain.carts.definition import Between, CartRules, Order
from rota.domain.carts.facts import CartState
from rota.operations.carts import view
from rota.ports.queue import CARTS
from rota.server.scheduler.carts import CartKeeper
from testkit.builders import new_calendar
from testkit.cart_scenes import PARALLEL, CartScene
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio


@pytest.fixture
def keeper(timeline: Timeline) -> CartKeeper:
    return CartKeeper(timeline.engine, timeline.shards)


@pytest.fixture
def carts(timeline: Timeline) -> CartScene:
    return CartScene(timeline.scene)


async def test_a_cart_goes_from_wave_to_wave_as_its_items_end(
    timeline: Timeline, keeper: CartKeeper, carts: CartScene
) -> None:
    cart = await carts.submit(await timeline.scene.job(), items=3)
    worker = await timeline.scene.worker()
    done: list[str] = []

    while await keeper.run_once():
        done += await carts.work(cart, worker)

    assert done == ["item-0", "item-1", "item-2"]
    assert (await carts.show(cart)).state is CartState.COMPLETED


async def test_the_end_of_an_item_wakes_it(timeline: Timeline, carts: CartScene) -> None:
    cart = await carts.submit(await timeline.scene.job(), items=1)
    await carts.advance(cart)
    worker = await timeline.scene.worker()
    listener = timeline.engine.queue.listen(CARTS)

    [work] = await timeline.scene.claim(worker, 1)
    await timeline.scene.finish(worker, [work])

    assert await listener.wait(timedelta(seconds=5))
    listener.close()


async def test_several_keepers_start_each_item_once(
    timeline: Timeline, keeper: CartKeeper, carts: CartScene
) -> None:
    cart = await carts.submit(await timeline.scene.job(), PARALLEL, items=50)
    others = [CartKeeper(timeline.engine, timeline.shards) for _ in range(3)]

    await asyncio.gather(*(each.run_once() for each in (keeper, *others)))

    assert [item.runs for item in await carts.items(cart)] == [1] * 50


async def test_calendars_keep_waves_closed_and_what_runs_goes_on(
    timeline: Timeline, keeper: CartKeeper, carts: CartScene
) -> None:
    calendar = new_calendar("business", "daily 00:00-24:00")
    await timeline.store.save_calendars([calendar], actor="ann")
    cart = await carts.submit(await timeline.scene.job(), CartRules(calendars=("business",)))

    await keeper.run_once()

    shown = await carts.show(cart)
    assert (shown.state, shown.reason) == (CartState.WAITING, "window")
    assert shown.open == 0


async def test_a_cart_goes_on_soon_after_its_calendar_was_changed(
    timeline: Timeline, keeper: CartKeeper, carts: CartScene
) -> None:
    calendar = new_calendar("freeze", "2030-01-01T00:00/2030-02-01T00:00")
    await timeline.store.save_calendars([calendar], actor="ann")
    rules = CartRules(Order.PARALLEL, calendars=("freeze",))
    cart = await carts.submit(await timeline.scene.job(), rules)
    await keeper.run_once()
    assert (await carts.show(cart)).reason == "window"
    seen = await view(timeline.engine, await carts.show(cart))
    assert seen.gate is not None
    assert seen.gate.until == datetime(2030, 2, 1, tzinfo=UTC)

    lifted = new_calendar("freeze", "2029-01-01T00:00/2029-02-01T00:00", expected_version=1)
    await timeline.store.save_calendars([lifted], actor="ann")
    timeline.be_down(timedelta(seconds=10))
    await keeper.run_once()

    assert (await carts.show(cart)).open == 3


async def test_a_soak_ends_by_the_clock(
    timeline: Timeline, keeper: CartKeeper, carts: CartScene
) -> None:
    rules = CartRules(between=Between(wait=timedelta(seconds=20)))
    cart = await carts.submit(await timeline.scene.job(), rules, items=2)
    worker = await timeline.scene.worker()
    await keeper.run_once()
    await carts.work(cart, worker)
    await keeper.run_once()
    assert (await carts.show(cart)).reason == "soak"

    timeline.be_down(timedelta(seconds=20))
    await keeper.run_once()

    assert await carts.work(cart, worker) == ["item-1"]


async def test_without_shards_it_leaves_carts_alone(
    timeline: Timeline, keeper: CartKeeper, carts: CartScene
) -> None:
    cart = await carts.submit(await timeline.scene.job())
    timeline.shards.hold({}, until=1e12)

    assert await keeper.run_once() == 0
    assert (await carts.show(cart)).state is CartState.PLANNED
