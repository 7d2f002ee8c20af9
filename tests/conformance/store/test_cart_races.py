"""What happens to a cart at the same time as something else, or without anybody's asking."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.carts.definition import CartRules, OnBreach
from rota.domain.carts.facts import CartState, ItemState
from rota.domain.carts.intake import NewItem
from rota.domain.errors import NotFound
from rota.domain.ids import SHARD_COUNT, JobId, RunId, SessionId, shard_of
from rota.domain.spec import Delivery
from rota.domain.states import RunState
from rota.ports.carts import CancelCart, PauseCart
from rota.ports.records import Idempotency
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene, allowing

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


class TestDiscarding:
    async def test_what_was_submitted_stays_whole(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, PARALLEL, items=3)

        await scene.store.discard_cart(cart)

        shown, _ = await carts.play(cart, worker)
        assert (shown.state, shown.completed) == (CartState.COMPLETED, 3)

    async def test_what_is_submitted_twice_with_one_key_stays_whole(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        key = Idempotency("key", "digest")
        cart = await carts.fill(job, PARALLEL, items=3)
        for _ in range(2):
            assert await scene.store.submit_cart(cart, key) == cart

        shown, _ = await carts.play(cart, worker)
        assert (shown.state, shown.completed) == (CartState.COMPLETED, 3)

    async def test_it_takes_as_many_transactions_as_there_are_items(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await carts.fill(job, PARALLEL, items=4_001)

        await scene.store.discard_cart(cart)

        assert await carts.items(cart) == []
        assert await scene.store.forget_loading_carts(await scene.store.now() + MINUTE) == 0

    async def test_what_is_gone_takes_no_more_items(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await carts.fill(job, PARALLEL, items=3)
        await scene.store.discard_cart(cart)

        with pytest.raises(NotFound):
            await scene.store.add_items(cart, 3, [NewItem("late", 1, job, 1, None)])


class TestFailuresNobodyReports:
    async def test_a_deadline_that_passes_stops_the_cart_before_anything_else_starts(
        self, scene: Scene, carts: CartScene, worker: SessionId
    ) -> None:
        job = await scene.job("urgent", deadline=MINUTE)
        rules = replace(PARALLEL, max_parallel=2, failures=allowing(0))
        cart = await carts.submit(job, rules, items=3)
        await carts.advance(cart)
        [held] = await scene.claim(worker, 1)
        scene.advance(2 * MINUTE)

        await scene.store.release_forgotten(100)

        shown = await carts.show(cart)
        assert (shown.state, shown.reason, shown.failed) == (CartState.PAUSED, "failures", 1)
        await scene.finish(worker, [held])
        assert (await carts.advance(cart)).pending == 1

    async def test_what_is_resolved_as_failed_is_counted_at_once(
        self, scene: Scene, carts: CartScene, worker: SessionId
    ) -> None:
        job = await scene.job("once", delivery=Delivery.AT_MOST_ONCE)
        cart = await carts.submit(job, replace(PARALLEL, failures=allowing(1)), items=2)
        await carts.advance(cart)
        [work] = await scene.claim(worker, 1)
        await scene.start(worker, [work])
        await scene.store.end_session(worker)

        await scene.store.resolve(RunId(work.run), RunState.FAILED, actor="person")

        shown = await carts.show(cart)
        assert (shown.failed, shown.open) == (1, 1)

    async def test_an_unknown_end_that_calls_the_rest_off_is_carried_out(
        self, scene: Scene, carts: CartScene, worker: SessionId
    ) -> None:
        job = await scene.job("once", delivery=Delivery.AT_MOST_ONCE)
        rules = CartRules(failures=allowing(0, then=OnBreach.CANCEL))
        cart = await carts.submit(job, rules)
        await carts.advance(cart)
        [work] = await scene.claim(worker, 1)
        await scene.start(worker, [work])

        await scene.store.end_session(worker)

        [look] = await scene.store.carts_to_advance(range(SHARD_COUNT), 10)
        assert look.id == cart
        await carts.advance(cart)
        assert await carts.states(cart) == [ItemState.OPEN, ItemState.SKIPPED, ItemState.SKIPPED]


class TestSlots:
    """Of a job with a limit: what a cart does not use any more, others get."""

    @pytest.mark.parametrize("command", [PauseCart(), CancelCart()], ids=["pause", "cancel"])
    async def test_a_held_cart_gives_them_back(
        self, scene: Scene, carts: CartScene, command: PauseCart | CancelCart
    ) -> None:
        job = await scene.job("limited", max_concurrency=1)
        cart = await carts.submit(job)
        await carts.advance(cart)
        [other] = await scene.trigger(job)
        assert await scene.state(other) is RunState.BLOCKED

        await carts.command(cart, command)

        assert await scene.state(other) is RunState.QUEUED

    async def test_so_does_one_that_has_failed(
        self, scene: Scene, carts: CartScene, worker: SessionId
    ) -> None:
        job = await scene.job("limited", max_concurrency=2)
        cart = await carts.submit(job, PARALLEL, items=3)
        await carts.advance(cart)
        others = await scene.trigger(job, 2)

        await carts.work(cart, worker, failing=["item-0"], most=1)

        assert (await carts.show(cart)).state is CartState.PAUSED
        assert await scene.states(others) == [RunState.QUEUED, RunState.QUEUED]


async def test_a_keeper_is_told_of_the_carts_of_its_shards_only(
    scene: Scene, carts: CartScene, job: JobId, worker: SessionId
) -> None:
    cart = await carts.submit(job)
    await carts.advance(cart)
    await carts.work(cart, worker)
    others = set(range(SHARD_COUNT)) - {shard_of(cart)}

    assert await scene.store.carts_to_advance(others, 10) == []
    [look] = await scene.store.carts_to_advance([shard_of(cart)], 10)
    assert look.id == cart
