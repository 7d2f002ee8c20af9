"""Carts: waves in order, within a failure budget, through pauses, retries and cancels."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.carts.definition import Between, CartRules, OnBreach, Order, Share
from rota.domain.carts.facts import FAILED_ITEM_STATES, CartState, ItemState
from rota.domain.errors import Conflict
from rota.domain.ids import SHARD_COUNT, CartId, JobId, RunId, SessionId
from rota.domain.run import Trigger
from rota.domain.spec import Delivery, Retry
from rota.domain.states import RunState
from rota.ports.carts import (
    CancelCart,
    CartQuery,
    EditCart,
    PauseCart,
    ResumeCart,
    RetryItems,
    Selection,
)
from rota.ports.records import Idempotency, RunQuery
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene, allowing

pytestmark = pytest.mark.anyio


async def due(scene: Scene) -> list[CartId]:
    """The carts that a keeper would look at now."""
    return [look.id for look in await scene.store.carts_to_advance(range(SHARD_COUNT), 100)]


async def told(scene: Scene, kind: str) -> list[dict[str, object]]:
    """What events of this kind say."""
    events = await scene.store.events(0, 1_000)
    return [dict(event.data) for event in events if event.kind == kind]


async def failed_at_breach(scene: Scene) -> list[object]:
    """How many had failed each time that it was too many."""
    return [data["failed"] for data in await told(scene, "cart.threshold")]


class TestOrder:
    async def test_serial_items_run_one_after_another(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job)

        shown, flights = await carts.play(cart, worker)

        assert flights == [["item-0"], ["item-1"], ["item-2"]]
        assert shown.state is CartState.COMPLETED
        assert (shown.completed, shown.open, shown.pending) == (3, 0, 0)
        assert shown.ended_at is not None

    async def test_a_ramp_opens_wave_after_wave(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(Order.GROUPS, (Share(1), Share(2), Share(3)))
        cart = await carts.submit(job, rules, items=8)

        _, flights = await carts.play(cart, worker)

        assert [len(keys) for keys in flights] == [1, 2, 3, 2]

    async def test_the_end_of_each_wave_is_told_once_before_what_comes_between(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(
            Order.GROUPS, (Share(2),), max_parallel=1, between=Between(wait=timedelta(minutes=5))
        )
        cart = await carts.submit(job, replace(rules, failures=allowing(1)), items=3)
        await carts.play(cart, worker, ["item-1"])
        waiting = await told(scene, "cart.wave_finished")
        scene.advance(timedelta(minutes=5))

        await carts.play(cart, worker)
        await carts.command(cart, RetryItems(Selection(FAILED_ITEM_STATES)))
        await carts.play(cart, worker)

        first = {"wave": 1, "items": 2, "failed": 1}
        assert waiting == [first]
        assert await told(scene, "cart.wave_finished") == [
            first,
            {"wave": 2, "items": 1, "failed": 0},
            {"wave": 1, "items": 2, "failed": 0},
        ]

    async def test_no_more_are_in_flight_than_max_parallel(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, replace(PARALLEL, max_parallel=4), items=10)

        _, flights = await carts.play(cart, worker)

        assert [len(keys) for keys in flights] == [4, 4, 2]

    async def test_items_of_a_wave_go_in_their_order_where_not_all_can_at_once(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, PARALLEL, items=12)
        await carts.advance(cart)
        named = [str(item.run) for item in await carts.items(cart)]  # as a ticket does

        claims = [await scene.claim(worker, 1, runs=named) for _ in named]

        claimed = [work.item for works in claims for work in works]
        assert claimed == [f"item-{number}" for number in range(12)]

    async def test_runs_know_their_cart_and_item(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await carts.submit(job)
        await carts.advance(cart)

        [item, *_] = await carts.items(cart)
        run = await scene.show(str(item.run))

        assert (run.cart, run.item, run.trigger) == (cart, "item-0", Trigger.CART)
        assert (item.state, item.run_state, item.runs) == (ItemState.OPEN, RunState.BLOCKED, 1)
        assert (await scene.store.cells(cart))[0] == RunState.BLOCKED  # there is no worker
        for states, found in (([RunState.BLOCKED], 1), ([RunState.QUEUED], 0)):
            query = RunQuery(cart=cart, states=states, served=())
            assert len(await scene.store.runs(query)) == found

        await scene.worker()
        [item, *_] = await carts.items(cart)
        assert item.run_state is RunState.QUEUED
        assert (await scene.store.cells(cart))[0] == RunState.QUEUED


class TestFailures:
    async def test_the_first_failure_too_many_pauses_before_anything_new_starts(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = replace(PARALLEL, failures=allowing(1))
        cart = await carts.submit(job, rules, items=6)
        await carts.advance(cart)

        done = await carts.work(cart, worker, failing=["item-0", "item-1"], most=2)

        assert done == ["item-0", "item-1"]
        shown = await carts.show(cart)
        assert (shown.state, shown.reason, shown.failed) == (CartState.PAUSED, "failures", 2)
        assert await carts.work(cart, worker) == []

    async def test_failures_within_the_budget_make_it_partial(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, replace(PARALLEL, failures=allowing("50%")), items=4)

        shown, _ = await carts.play(cart, worker, failing=["item-0", "item-1"])

        assert (shown.state, shown.completed, shown.failed) == (CartState.PARTIAL, 2, 2)

    async def test_a_breach_may_call_the_rest_off(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(failures=allowing(0, then=OnBreach.CANCEL))
        cart = await carts.submit(job, rules, items=3)

        shown, _ = await carts.play(cart, worker, failing=["item-0"])

        assert shown.state is CartState.FAILED
        assert await carts.states(cart) == [
            ItemState.FAILED,
            ItemState.SKIPPED,
            ItemState.SKIPPED,
        ]

    async def test_a_breach_that_stops_nothing_is_told_once_for_each_allowance(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(failures=allowing(0, then=OnBreach.CONTINUE))
        cart = await carts.submit(job, rules, items=6)
        for _ in range(2):
            await carts.advance(cart)
            await carts.work(cart, worker, ["item-0", "item-1"])
        assert await failed_at_breach(scene) == [1]

        raised = replace(rules, failures=allowing(2, then=OnBreach.CONTINUE))
        await carts.command(cart, EditCart(raised))
        ended, _ = await carts.play(cart, worker, ["item-3", "item-4"])

        assert await failed_at_breach(scene) == [1, 3]
        assert (ended.state, ended.breach_wave) == (CartState.PARTIAL, 4)

    async def test_failures_are_grouped_by_their_cause(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, replace(PARALLEL, failures=allowing("100%")), items=3)
        await carts.advance(cart)
        for number, work in enumerate(await scene.claim(worker, 3)):
            said = f"disk full on db-{number:03}: {number} MB left" if number else "no route"
            await scene.finish(worker, [work], result="FAILED", message=said)

        await carts.advance(cart)
        groups = await scene.store.failure_groups(cart, 10)

        assert [group.count for group in groups] == [2, 1]
        assert groups[0].message == "disk full on db-001: 1 MB left"


class TestGoingOn:
    async def test_a_failure_that_ends_a_wave_does_not_end_the_cart(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, CartRules(failures=allowing(1)))
        await carts.advance(cart)

        await carts.work(cart, worker, failing=["item-0"])

        assert await due(scene) == [cart]

    async def test_a_breach_that_calls_the_rest_off_is_carried_out(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(failures=allowing(0, then=OnBreach.CANCEL))
        cart = await carts.submit(job, rules)
        await carts.advance(cart)

        await carts.work(cart, worker, failing=["item-0"])

        assert await due(scene) == [cart]

    async def test_an_end_that_a_command_counted_is_not_forgotten(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job)
        await carts.advance(cart)
        works = await scene.claim(worker)
        await carts.command(cart, CancelCart(stops_running=False))
        await carts.advance(cart)
        await scene.finish(worker, works)

        await carts.command(cart, CancelCart(stops_running=False))

        assert await due(scene) == [cart]

    @pytest.mark.parametrize("result", ["FAILED", "LOST"])
    async def test_what_would_be_tried_again_does_not_keep_a_cancelled_cart_from_its_end(
        self, scene: Scene, carts: CartScene, worker: SessionId, result: str
    ) -> None:
        job = await scene.job("flaky", retry=Retry(attempts=2))
        cart = await carts.submit(job)
        await carts.advance(cart)
        [work] = await scene.claim(worker)
        await carts.command(cart, CancelCart(stops_running=False))
        await carts.advance(cart)

        if result == "LOST":
            await scene.store.lose(worker, [work.fence])
        else:
            await scene.finish(worker, [work], result=result)

        assert await due(scene) == [cart]
        assert (await carts.advance(cart)).state is CartState.CANCELLED

    async def test_nor_does_what_a_person_wants_to_be_tried_again(
        self, scene: Scene, carts: CartScene, worker: SessionId
    ) -> None:
        job = await scene.job("once", delivery=Delivery.AT_MOST_ONCE)
        cart = await carts.submit(job)
        await carts.advance(cart)
        [work] = await scene.claim(worker)
        await scene.start(worker, [work])
        await scene.store.lose(worker, [work.fence])
        await carts.command(cart, CancelCart())
        await carts.advance(cart)

        await scene.store.resolve(RunId(work.run), RunState.SCHEDULED, actor="bob")

        assert await due(scene) == [cart]
        assert (await carts.advance(cart)).state is CartState.CANCELLED


class TestPausing:
    async def test_what_waits_is_taken_back_and_let_go_again(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, PARALLEL, items=3)
        await carts.advance(cart)

        paused = await carts.command(cart, PauseCart())
        assert (paused.cart.state, paused.cart.reason) == (CartState.PAUSED, "person")
        assert await carts.work(cart, worker) == []
        [held, *_] = await scene.store.runs(RunQuery(cart=cart))
        assert held.state is RunState.BLOCKED
        assert held.reasons[0].gate == "cart"

        await carts.command(cart, ResumeCart())
        await scene.release()
        shown, flights = await carts.play(cart, worker)

        assert [len(keys) for keys in flights] == [3]
        assert shown.state is CartState.COMPLETED
        assert {item.runs for item in await carts.items(cart)} == {1}

    async def test_a_retry_waits_for_the_end_of_the_pause(
        self, scene: Scene, carts: CartScene, worker: SessionId
    ) -> None:
        job = await scene.job("flaky", retry=Retry(attempts=2, delay=timedelta(seconds=1)))
        cart = await carts.submit(job, items=1)
        await carts.advance(cart)
        [work] = await scene.claim(worker, 1)
        await carts.command(cart, PauseCart())
        await scene.finish(worker, [work], result="FAILED")

        scene.advance(timedelta(minutes=1))
        await scene.release()
        assert await scene.state(work.run) is RunState.BLOCKED

        await carts.command(cart, ResumeCart())
        await scene.release()
        shown, flights = await carts.play(cart, worker)
        assert flights == [["item-0"]]
        assert shown.state is CartState.COMPLETED

    async def test_the_time_of_what_it_holds_stands_still(
        self, scene: Scene, carts: CartScene
    ) -> None:
        job = await scene.job("urgent", deadline=timedelta(minutes=10))
        cart = await carts.submit(job, PARALLEL, items=2)
        await carts.advance(cart)
        await carts.command(cart, PauseCart())
        scene.advance(timedelta(hours=8))
        await scene.store.release_forgotten(100)

        await carts.command(cart, ResumeCart())
        await scene.store.release_forgotten(100)
        await scene.release()

        shown, _ = await carts.play(cart, await scene.worker())
        assert shown.state is CartState.COMPLETED

    async def test_pausing_twice_is_no_mistake(self, carts: CartScene, job: JobId) -> None:
        cart = await carts.submit(job)

        assert (await carts.command(cart, PauseCart())).has_changed
        assert not (await carts.command(cart, PauseCart())).has_changed

    async def test_resume_is_refused_until_the_budget_is_raised(
        self, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job)
        await carts.play(cart, worker, failing=["item-0"])

        with pytest.raises(Conflict) as refusal:
            await carts.command(cart, ResumeCart())
        assert refusal.value.code == "still_breached"

        await carts.command(cart, ResumeCart(allow=Share(1)))
        shown, flights = await carts.play(cart, worker)
        assert flights == [["item-1"], ["item-2"]]
        assert shown.state is CartState.PARTIAL


class TestCancelling:
    async def test_what_has_not_begun_is_skipped(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, replace(PARALLEL, max_parallel=2), items=5)
        await carts.advance(cart)
        [held] = await scene.claim(worker, 1)

        await carts.command(cart, CancelCart(stops_running=False))
        shown = await carts.advance(cart)
        assert (shown.state, shown.reason, shown.open) == (CartState.RUNNING, "cancelling", 1)

        await scene.finish(worker, [held])
        shown = await carts.advance(cart)
        assert (shown.state, shown.completed, shown.skipped) == (CartState.CANCELLED, 1, 4)

    @pytest.mark.parametrize("stops_running", [True, False])
    async def test_nothing_begins_once_it_is_cancelled(
        self, carts: CartScene, job: JobId, worker: SessionId, stops_running: bool
    ) -> None:
        cart = await carts.submit(job, PARALLEL, items=5)
        await carts.advance(cart)

        await carts.command(cart, CancelCart(stops_running))

        assert await carts.work(cart, worker) == []
        shown = await carts.advance(cart)
        assert (shown.state, shown.skipped) == (CartState.CANCELLED, 5)

    async def test_what_runs_is_asked_to_stop(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job)
        await carts.advance(cart)
        [held] = await scene.claim(worker, 1)

        await carts.command(cart, CancelCart())

        assert await scene.store.cancels(worker) == (held.fence,)
        await scene.finish(worker, [held], result="CANCELLED")
        shown = await carts.advance(cart)
        assert (shown.state, shown.cancelled, shown.skipped) == (CartState.CANCELLED, 1, 2)


class TestSubmitting:
    async def test_two_carts_of_one_name_do_not_live_together(
        self, carts: CartScene, job: JobId
    ) -> None:
        await carts.submit(job)

        with pytest.raises(Conflict) as refusal:
            await carts.submit(job)
        assert refusal.value.code == "cart_is_live"

    async def test_what_is_still_being_filled_is_not_there(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await carts.fill(job, PARALLEL, items=3)

        assert await scene.store.carts(CartQuery()) == []
        assert await scene.store.carts_to_advance(range(256), 10) == []
        later = await scene.store.now() + timedelta(hours=1)
        assert await scene.store.forget_loading_carts(later) == 1
        with pytest.raises(Exception, match="is being filled"):
            await scene.store.submit_cart(cart)

    async def test_a_key_gives_the_same_cart(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        key = Idempotency("key", "digest")
        first = await carts.fill(job, PARALLEL, items=3)
        again = await carts.fill(job, PARALLEL, items=3)

        assert await scene.store.submit_cart(first, key) == first
        assert await scene.store.submit_cart(again, key) == first

    async def test_a_planned_cart_waits_for_its_time(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        at = await scene.store.now() + timedelta(hours=1)
        cart = await carts.submit(job, starts_at=at)

        shown = await carts.advance(cart)
        assert (shown.state, shown.look_at) == (CartState.PLANNED, at)

        scene.advance(timedelta(hours=1))
        assert [look.id for look in await scene.store.carts_to_advance(range(256), 10)] == [cart]
        shown, _ = await carts.play(cart, await scene.worker())
        assert shown.state is CartState.COMPLETED


class TestSeeing:
    async def test_cells_and_waves_tell_where_items_are(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        rules = CartRules(Order.GROUPS, (Share(2),), failures=allowing(5))
        cart = await carts.submit(job, rules, items=5)
        await carts.advance(cart)
        await carts.work(cart, worker, failing=["item-1"])
        await carts.advance(cart)

        assert await scene.store.cells(cart) == [
            "COMPLETED",
            "FAILED",
            "QUEUED",
            "QUEUED",
            "PENDING",
        ]
        waves = await scene.store.waves(cart, 0, 10)
        assert [(wave.number, sum(wave.items.values())) for wave in waves] == [
            (1, 2),
            (2, 2),
            (3, 1),
        ]

    async def test_an_overview_needs_no_look_at_every_wave(
        self, scene: Scene, carts: CartScene, job: JobId, worker: SessionId
    ) -> None:
        cart = await carts.submit(job, CartRules(failures=allowing(5)), items=6)
        await carts.advance(cart)
        await carts.work(cart, worker, failing=["item-0"])
        shown = await carts.advance(cart)

        overview = await scene.store.overview(shown, waves=2)

        assert overview.items == {
            ItemState.FAILED: 1,
            ItemState.OPEN: 1,
            ItemState.PENDING: 4,
        }
        assert (overview.place, overview.waves, overview.left) == (2, 6, [1, 1])
        assert overview.in_wave == {ItemState.OPEN: 1}
