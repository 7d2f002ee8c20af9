"""What is read of carts, however big they are."""

from __future__ import annotations

import pytest

from rota.domain.carts.definition import CartRules, Order
from rota.domain.carts.facts import FAILED_ITEM_STATES, FINAL_ITEM_STATES, ItemState
from rota.domain.errors import Conflict
from rota.domain.ids import JobId
from rota.domain.spec import Delivery
from rota.ports.carts import CancelCart, PauseCart, Selection
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene, allowing

pytestmark = pytest.mark.anyio

TOLERANT = CartRules(Order.PARALLEL, failures=allowing("100%"))


@pytest.fixture
def carts(scene: Scene) -> CartScene:
    return CartScene(scene)


@pytest.fixture
async def job(scene: Scene) -> JobId:
    return await scene.job()


async def test_waves_come_some_at_a_time(scene: Scene, carts: CartScene, job: JobId) -> None:
    cart = await carts.submit(job, CartRules(Order.EXPLICIT), waves=(5, 7, 7, 9))

    async def numbers(after: int, limit: int) -> list[int]:
        return [wave.number for wave in await scene.store.waves(cart, after, limit)]

    assert await numbers(0, 2) == [5, 7]
    assert await numbers(7, 2) == [9]
    [seven] = await scene.store.waves(cart, 5, 1)
    assert seven.items == {ItemState.PENDING: 2}


async def test_the_cells_of_a_big_cart_are_in_the_order_of_its_items(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, PARALLEL, items=2_100)
    await carts.advance(cart)
    worker = await scene.worker()
    await scene.claim(worker, 1)

    cells = await scene.store.cells(cart)

    assert cells == ["CLAIMED"] + ["QUEUED"] * 999 + ["PENDING"] * 1_100


async def test_open_items_whose_end_nobody_knows_are_counted(
    scene: Scene, carts: CartScene
) -> None:
    job = await scene.job(delivery=Delivery.AT_MOST_ONCE)
    cart = await carts.submit(job, TOLERANT, items=3)
    await carts.advance(cart)
    worker = await scene.worker()
    await scene.start(worker, await scene.claim(worker, 2))
    await scene.vanish(worker)

    overview = await scene.store.overview(await carts.show(cart), 10)

    assert overview.unknown == 2


async def test_versions_are_those_of_the_items_that_are_meant(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, TOLERANT, items=2)
    await carts.play(cart, await scene.worker(), failing=["item-1"])
    version = (await scene.show_job(job)).version

    async def found(selection: Selection) -> list[tuple[JobId, int]]:
        return await scene.store.versions_of_items(cart, selection)

    assert await found(Selection(FAILED_ITEM_STATES)) == [(job, version)]
    assert await found(Selection(FINAL_ITEM_STATES, from_wave=2)) == []
    assert await found(Selection(FAILED_ITEM_STATES, keys=["item-0"])) == []


async def test_only_what_a_worker_had_was_attempted(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, PARALLEL, items=3)
    await carts.advance(cart)
    worker = await scene.worker()
    await carts.work(cart, worker, most=1)
    await carts.command(cart, CancelCart())
    await carts.advance(cart)

    attempted = await carts.items(cart, only_attempted=True)

    assert [item.key for item in attempted] == ["item-0"]


async def test_a_cart_is_cancelled_just_as_it_was_seen(carts: CartScene, job: JobId) -> None:
    cart = await carts.submit(job)
    seen = (await carts.command(cart, PauseCart())).cart

    with pytest.raises(Conflict) as refusal:
        await carts.command(cart, CancelCart(expected_version=seen.version - 1))

    assert refusal.value.code == "changed_meanwhile"
    done = await carts.command(cart, CancelCart(expected_version=seen.version))
    assert done.has_changed
