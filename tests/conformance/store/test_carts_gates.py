"""What stands between the waves of a cart, and what people change of it before it is passed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.carts.commands import Approver
from rota.domain.carts.definition import Between, CartRules
from rota.domain.carts.facts import CartState, ItemState
from rota.domain.errors import Conflict, Denied
from rota.domain.ids import CartId, JobId, SessionId
from rota.domain.states import RunState
from rota.ports.carts import (
    ApproveCart,
    CancelCart,
    EditCart,
    EditedItem,
    PauseCart,
    ResumeCart,
    RetryItems,
    Selection,
)
from testkit.builders import Scene
from testkit.cart_scenes import CartScene

pytestmark = pytest.mark.anyio

ADMIN = Approver("bob", {"editor", "admin"})
EDITOR = Approver("eve", {"editor"})
NIGHT = timedelta(hours=8)
CHECKED = CartRules(between=Between(check="smoke"))
APPROVED = CartRules(between=Between(approve="admin"))


class TestBetweenWaves:
    async def test_a_wave_soaks(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(between=Between(wait=timedelta(minutes=5)))
        cart = await carts.submit(job, rules)
        shown, flights = await carts.play(cart, worker)
        assert (shown.state, shown.reason) == (CartState.WAITING, "soak")
        assert flights == [["item-0"]]

        scene.advance(timedelta(minutes=5))
        _, flights = await carts.play(cart, worker)
        assert flights == [["item-1"]]

    async def test_a_check_has_to_complete(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        await scene.job("smoke")
        cart = await carts.submit(job, CartRules(between=Between(check="smoke")), items=2)
        await carts.advance(cart)
        await carts.work(cart, worker)
        shown = await carts.advance(cart)
        assert (shown.state, shown.reason) == (CartState.WAITING, "check")

        [check] = await scene.claim(worker, 10)
        await scene.finish(worker, [check], result="FAILED")
        shown = await carts.advance(cart)
        assert (shown.state, shown.reason) == (CartState.PAUSED, "check")

        await carts.command(cart, ResumeCart())
        await carts.advance(cart)
        [check] = await scene.claim(worker, 10)
        await scene.finish(worker, [check])
        shown, flights = await carts.play(cart, worker)
        assert flights == [["item-1"]]

    async def test_somebody_else_has_to_approve(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, CartRules(between=Between(approve="admin")), items=2)
        shown, _ = await carts.play(cart, worker)
        assert (shown.state, shown.reason) == (CartState.WAITING, "approval")

        for who, roles in (("eve", {"editor"}), (shown.created_by, {"admin"})):
            with pytest.raises(Denied):
                await carts.command(cart, ApproveCart(Approver(who, roles)), actor=who)

        await carts.command(cart, ApproveCart(Approver("bob", {"admin"})))
        shown, flights = await carts.play(cart, worker)
        assert (shown.state, flights) == (CartState.COMPLETED, [["item-1"]])

    async def test_calendars_keep_a_wave_closed(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await carts.submit(job)
        opens_at = await scene.store.now() + timedelta(hours=2)

        shown = await carts.advance(cart, closed_until=opens_at)
        assert (shown.state, shown.reason, shown.look_at) == (
            CartState.WAITING,
            "window",
            opens_at,
        )
        assert [look.id for look in await scene.store.carts_to_advance(range(256), 10)] == []


class TestCheck:
    @pytest.fixture
    async def cart(self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId) -> CartId:
        """One whose check waits for a worker."""
        await scene.job("smoke")
        cart = await carts.submit(job, CHECKED, items=2)
        await carts.advance(cart)
        await carts.work(cart, worker)
        await carts.advance(cart)
        return cart

    @pytest.mark.parametrize("is_running", [True, False])
    async def test_a_pause_does_not_make_it_run_twice(
        self, scene: Scene, carts: CartScene, cart: CartId, worker: SessionId, is_running: bool
    ) -> None:
        works = await scene.claim(worker) if is_running else []
        await carts.command(cart, PauseCart())
        await carts.command(cart, ResumeCart())
        await scene.release()

        await carts.advance(cart)

        [check] = works + await scene.claim(worker)
        await scene.finish(worker, [check])
        _, flights = await carts.play(cart, worker)
        assert flights == [["item-1"]]

    async def test_it_is_stopped_with_the_cart(
        self, scene: Scene, carts: CartScene, cart: CartId, worker: SessionId
    ) -> None:
        [check] = await scene.claim(worker)

        await carts.command(cart, CancelCart())

        assert await scene.store.cancels(worker) == (check.fence,)

    async def test_it_runs_again_if_what_comes_next_is_edited(
        self, scene: Scene, carts: CartScene, cart: CartId, worker: SessionId
    ) -> None:
        [check] = await scene.claim(worker)

        await carts.command(cart, EditCart(CHECKED, [EditedItem("item-1", inputs={})]))
        await carts.advance(cart)

        assert await scene.store.cancels(worker) == (check.fence,)
        await scene.finish(worker, [check], result="CANCELLED")
        [again] = await scene.claim(worker)
        shown = await carts.show(cart)
        assert (shown.reason, shown.check_run) == ("check", again.run)

    async def test_it_is_stopped_if_items_it_was_about_run_again(
        self, scene: Scene, carts: CartScene, cart: CartId, worker: SessionId
    ) -> None:
        [check] = await scene.claim(worker)

        await carts.command(cart, RetryItems(Selection({ItemState.COMPLETED})))
        await carts.advance(cart)

        assert await scene.store.cancels(worker) == (check.fence,)
        assert (await carts.show(cart)).check_run is None

    async def test_one_that_waits_is_not_begun_if_it_is_changed(
        self, scene: Scene, carts: CartScene, cart: CartId
    ) -> None:
        shown = await carts.show(cart)

        await carts.command(cart, EditCart(CartRules()))

        assert await scene.state(str(shown.check_run)) is RunState.CANCELLED
        assert (await carts.advance(cart)).state is CartState.RUNNING


class TestApproval:
    @pytest.fixture
    async def cart(self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId) -> CartId:
        """One whose next wave was approved, and waits for its calendars."""
        cart = await carts.submit(job, APPROVED, items=2)
        await carts.play(cart, worker)
        await carts.command(cart, ApproveCart(ADMIN))
        shown = await carts.advance(cart, await scene.store.now() + NIGHT)
        assert shown.reason == "window"
        return cart

    @pytest.mark.parametrize(
        "edit",
        [
            EditCart(APPROVED, [EditedItem("item-1", inputs={"to": "all"})]),
            EditCart(CartRules(between=Between(timedelta(0), "smoke", "admin"))),
        ],
        ids=["items", "between"],
    )
    async def test_is_void_for_what_was_edited_since(
        self, scene: Scene, carts: CartScene, cart: CartId, edit: EditCart
    ) -> None:
        await carts.command(cart, edit)

        assert (await carts.show(cart)).approved_by == ""

    async def test_stands_if_the_next_wave_is_as_it_was(
        self, carts: CartScene, cart: CartId
    ) -> None:
        await carts.command(cart, EditCart(replace(APPROVED, max_parallel=3)))

        assert (await carts.show(cart)).approved_by == "bob"

    @pytest.mark.parametrize("role", ["", "editor"])
    async def test_is_not_waived_by_whoever_could_not_give_it(
        self, carts: CartScene, cart: CartId, role: str
    ) -> None:
        rules = CartRules(between=Between(approve=role))

        with pytest.raises(Denied) as refusal:
            await carts.command(cart, EditCart(rules, by=EDITOR))
        assert refusal.value.code == "role_too_low"

        await carts.command(cart, EditCart(rules, by=ADMIN))
        assert (await carts.show(cart)).rules == rules


class TestEditing:
    async def test_closed_waves_change_and_opened_ones_do_not(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job)
        shown = await carts.advance(cart)

        edit = EditCart(shown.rules, [EditedItem("item-0", is_skipped=True)])
        with pytest.raises(Conflict) as refusal:
            await carts.command(cart, edit)
        assert refusal.value.code == "wave_opened"

        edit = EditCart(shown.rules, [EditedItem("item-1", is_skipped=True)])
        await carts.command(cart, edit)
        shown, flights = await carts.play(cart, worker)
        assert flights == [["item-0"], ["item-2"]]
        assert (shown.state, shown.skipped) == (CartState.PARTIAL, 1)

    async def test_what_is_skipped_is_skipped_once(self, carts: CartScene, job: JobId) -> None:
        cart = await carts.submit(job)
        shown = await carts.advance(cart)
        edit = EditCart(shown.rules, [EditedItem("item-1", is_skipped=True)])
        await carts.command(cart, edit)

        with pytest.raises(Conflict) as refusal:
            await carts.command(cart, edit)

        assert refusal.value.code == "item_ended"
        assert (await carts.show(cart)).skipped == 1
