"""Items of a cart that run once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.domain.carts.definition import CartRules, OnBreach, Order, Scope, Share
from rota.domain.carts.facts import CartState, ItemState
from rota.domain.errors import Conflict
from rota.domain.ids import JobId, SessionId
from rota.ports.carts import PauseCart, ResumeCart, RetryItems, Selection
from rota.ports.records import RemovedJob
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene, allowing

pytestmark = pytest.mark.anyio

FAILED = Selection({ItemState.FAILED, ItemState.TIMED_OUT})
FAILED_AND_SKIPPED = Selection({ItemState.FAILED, ItemState.TIMED_OUT, ItemState.SKIPPED})


class TestRetrying:
    async def test_failed_and_skipped_items_run_again_in_order(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(failures=allowing(0, then=OnBreach.CANCEL))
        cart = await carts.submit(job, rules, items=3)
        await carts.play(cart, worker, failing=["item-0"])
        [before, *_] = await carts.items(cart)

        commanded = await carts.command(cart, RetryItems(FAILED_AND_SKIPPED))
        shown, flights = await carts.play(cart, worker)

        assert commanded.items == 3
        assert flights == [["item-0"], ["item-1"], ["item-2"]]
        assert shown.state is CartState.COMPLETED
        [after, *_] = await carts.items(cart)
        assert (await scene.show(str(after.run))).retry_of == before.run
        assert [item.runs for item in await carts.items(cart)] == [2, 1, 1]

    async def test_what_nobody_has_begun_of_later_waves_is_put_back(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(Order.GROUPS, (Share(2), Share(7)), failures=allowing(1))
        cart = await carts.submit(job, rules, items=9)
        await carts.advance(cart)
        await carts.work(cart, worker, failing=["item-0"])
        await carts.advance(cart)
        [begun, failing] = await scene.claim(worker, 2)
        await scene.finish(worker, [failing], result="FAILED")
        assert (await carts.show(cart)).state is CartState.PAUSED

        await carts.command(cart, RetryItems(FAILED))
        await carts.command(cart, ResumeCart())
        await scene.release()
        assert await carts.work(cart, worker) == []
        await scene.finish(worker, [begun])
        shown, flights = await carts.play(cart, worker)

        assert flights[0] == ["item-0"]
        assert sorted(flights[1]) == [f"item-{n}" for n in range(3, 9)]
        assert (shown.state, shown.completed) == (CartState.COMPLETED, 9)
        runs = [item.runs for item in await carts.items(cart)]
        assert runs == [2, 1, 1, 2, 1, 1, 1, 1, 1]

    async def test_a_cart_whose_job_was_deleted_does_not_go_on(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await carts.submit(job)
        await carts.command(cart, PauseCart())
        await scene.store.save_jobs([], removed=[RemovedJob(job)], actor="ann")

        with pytest.raises(Conflict) as refusal:
            await carts.command(cart, ResumeCart())
        assert refusal.value.code == "job_deleted"

    async def test_nothing_to_retry_is_said(self, carts: CartScene, job: JobId) -> None:
        cart = await carts.submit(job)

        with pytest.raises(Conflict) as refusal:
            await carts.command(cart, RetryItems(FAILED))
        assert refusal.value.code == "nothing_to_retry"

    async def test_only_what_is_meant_runs_again(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(failures=allowing(9))
        cart = await carts.submit(job, rules, items=4)
        await carts.play(cart, worker, failing=["item-0", "item-1", "item-3"])
        keys = ["item-0", "item-1", "item-2"]

        selection = replace(FAILED, from_wave=2, keys=keys)
        commanded = await carts.command(cart, RetryItems(selection))

        assert (commanded.items, commanded.cart.failed, commanded.cart.pending) == (1, 2, 1)
        shown, flights = await carts.play(cart, worker)
        assert (shown.state, flights) == (CartState.PARTIAL, [["item-1"]])

    async def test_failures_of_a_wave_count_no_more_once_they_are_retried(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = replace(PARALLEL, failures=allowing(1, scope=Scope.WAVE))
        cart = await carts.submit(job, rules, items=4)
        shown, _ = await carts.play(cart, worker, failing=["item-0", "item-1"])
        assert (shown.state, shown.reason) == (CartState.PAUSED, "failures")

        await carts.command(cart, RetryItems(FAILED))
        await carts.command(cart, ResumeCart())
        shown, _ = await carts.play(cart, worker, failing=["item-0"])

        assert (shown.state, shown.failed) == (CartState.PARTIAL, 1)

    async def test_failures_of_a_wave_that_is_opened_again_still_count(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        failures = allowing(1, scope=Scope.WAVE)
        rules = replace(PARALLEL, failures=failures)
        cart = await carts.submit(job, rules, waves=[1, 1, 1, 2])
        await carts.play(cart, worker, failing=["item-0"])

        await carts.command(cart, RetryItems(replace(FAILED, states={ItemState.COMPLETED})))
        shown, _ = await carts.play(cart, worker, failing=["item-1"])

        assert (shown.state, shown.reason, shown.failed) == (CartState.PAUSED, "failures", 2)


class TestVersions:
    async def test_an_item_keeps_its_version_unless_a_new_one_is_given(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = replace(PARALLEL, failures=allowing("100%"))
        cart = await carts.submit(job, rules, items=2)
        await carts.play(cart, worker, failing=["item-0", "item-1"])
        await scene.change(job)

        await carts.command(cart, RetryItems(replace(FAILED, keys=["item-0"])))
        await carts.command(cart, RetryItems(replace(FAILED, keys=["item-1"]), {job: 2}))

        assert [item.job_version for item in await carts.items(cart)] == [1, 2]
