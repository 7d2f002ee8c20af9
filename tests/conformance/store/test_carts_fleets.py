"""Carts over a fleet: items that are each for one worker, and what becomes of one that is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.carts.definition import CartRules, Order, Share
from rota.domain.carts.facts import FAILED_ITEM_STATES, CartState, ItemState
from rota.domain.ids import CartId, JobId, SessionId
from rota.domain.states import Cause, RunState
from rota.ports.carts import (
    CancelCart,
    Overview,
    PauseCart,
    ResumeCart,
    RetryItems,
    Selection,
    StrandedItem,
)
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene, allowing

pytestmark = pytest.mark.anyio
SECOND = timedelta(seconds=1)
WITHIN = timedelta(minutes=10)
FORGIVING = replace(PARALLEL, failures=allowing(3))
WEB = [f"web-{number}" for number in range(3)]


async def fleet(scene: Scene, names: list[str] = WEB) -> dict[str, SessionId]:
    return {name: await scene.worker(name) for name in names}


async def over(
    carts: CartScene, job: JobId, rules: CartRules = PARALLEL, workers: list[str] = WEB
) -> CartId:
    """A cart with an item for each of these workers, which has begun."""
    cart = await carts.submit(job, rules, items=len(workers), workers=workers)
    await carts.advance(cart)
    return cart


async def run_of(carts: CartScene, cart: CartId, number: int) -> str:
    return str((await carts.items(cart))[number].run)


async def stranded(carts: CartScene, cart: CartId) -> list[StrandedItem]:
    overview: Overview = await carts.scene.store.overview(await carts.show(cart), 10)
    return list(overview.stranded)


async def sweep(scene: Scene) -> None:
    """What the scheduler does every few seconds."""
    while await scene.store.release_fitting(100):
        pass
    await scene.store.release_forgotten(100)
    await scene.release()


class TestEachOnItsOwn:
    async def test_an_item_goes_to_its_worker_and_to_no_other(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        sessions = await fleet(scene)
        await over(carts, job)

        got = {
            name: [work.item for work in await scene.claim(session)]
            for name, session in reversed(sessions.items())
        }

        assert got == {"web-0": ["item-0"], "web-1": ["item-1"], "web-2": ["item-2"]}

    async def test_needs_of_an_item_go_over_those_of_its_job(
        self, scene: Scene, carts: CartScene
    ) -> None:
        job = await scene.job(needs={"worker": "web-9", "site": "fra"})
        right = await scene.worker("web-0", labels={"site": "fra"})
        wrong = await scene.worker("web-1", labels={"site": "lon"})
        cart = await over(carts, job, workers=["web-0", "web-1"])

        assert [work.item for work in await scene.claim(right)] == ["item-0"]
        assert await scene.claim(wrong) == []
        [other] = await stranded(carts, cart)
        assert (other.key, "label site=fra" in other.message) == ("item-1", True)

    async def test_a_job_may_be_for_one_worker_too(self, scene: Scene) -> None:
        other, right = await scene.worker("web-0"), await scene.worker("web-1")
        [run] = await scene.trigger(await scene.job(needs={"worker": "web-1"}))

        assert await scene.claim(other) == []
        assert [work.run for work in await scene.claim(right)] == [run]

    async def test_groups_go_one_after_another(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        sessions = await fleet(scene)
        cart = await over(carts, job, CartRules(Order.GROUPS, (Share(1), Share(2))))
        flights = []
        for _ in range(2):
            done = [await carts.work(cart, each) for each in sessions.values()]
            flights.append([key for keys in done for key in keys])
            await carts.advance(cart)

        assert flights == [["item-0"], ["item-1", "item-2"]]
        assert (await carts.show(cart)).state is CartState.COMPLETED

    async def test_items_show_what_they_need(self, carts: CartScene, job: JobId) -> None:
        cart = await carts.submit(job, items=2, workers=["web-0", "web-1"])

        assert [item.needs for item in await carts.items(cart)] == [
            {"worker": "web-0"},
            {"worker": "web-1"},
        ]

    async def test_a_run_that_goes_alone_still_goes_to_its_worker(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        """It has lost its worker twice."""
        cart = await over(carts, job, workers=["web-0"])
        for _ in range(2):
            session = await scene.worker("web-0")
            await sweep(scene)
            await scene.start(session, await scene.claim(session))
            await scene.vanish(session)
            await sweep(scene)

        other, right = await scene.worker("web-1"), await scene.worker("web-0")
        await sweep(scene)

        assert (await scene.show(await run_of(carts, cart, 0))).is_alone
        assert await scene.claim(other) == []
        assert [work.item for work in await scene.claim(right)] == ["item-0"]


class TestGone:
    async def test_an_item_waits_for_its_worker_at_once_and_says_so(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        sessions = await fleet(scene)
        gone_at = scene.clock.instant
        await scene.store.end_session(sessions["web-1"])
        cart = await over(carts, job)

        [waiting] = await stranded(carts, cart)

        assert (await scene.show(await run_of(carts, cart, 1))).state is RunState.BLOCKED
        assert (waiting.key, waiting.until) == ("item-1", None)
        assert waiting.message == (
            f"waits for worker web-1, which is gone since {gone_at:%Y-%m-%d %H:%M:%S} UTC"
        )

    async def test_a_worker_that_never_was_is_said_to_be_missing(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        await scene.worker("web-0", pool="elsewhere")
        cart = await over(carts, job, workers=["web-0"])

        [waiting] = await stranded(carts, cart)

        assert waiting.message == "waits for worker web-0, which pool default does not have"

    async def test_a_worker_that_goes_leaves_its_queued_item_waiting(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        sessions = await fleet(scene)
        cart = await over(carts, job, replace(PARALLEL, within=WITHIN))
        await scene.store.end_session(sessions["web-2"])

        await sweep(scene)

        [waiting] = await stranded(carts, cart)
        assert waiting.key == "item-2"
        assert waiting.until == scene.clock.instant + WITHIN
        assert (await scene.show(await run_of(carts, cart, 0))).state is RunState.QUEUED

    async def test_one_that_comes_back_gets_its_item(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        await over(carts, job, replace(FORGIVING, within=WITHIN))
        scene.advance(WITHIN - SECOND)
        session = await scene.worker("web-1")
        await sweep(scene)
        scene.advance(timedelta(hours=1))  # nor is it missed once it is queued
        await sweep(scene)
        session = await scene.worker("web-1")

        assert [work.item for work in await scene.claim(session)] == ["item-1"]

    async def test_an_item_whose_worker_is_lost_waits_for_it_to_go_on(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        sessions = await fleet(scene)
        cart = await over(carts, job)
        await scene.start(sessions["web-0"], await scene.claim(sessions["web-0"]))
        await scene.vanish(sessions["web-0"])
        await sweep(scene)
        waiting = await stranded(carts, cart)

        back = await scene.worker("web-0")
        await sweep(scene)

        assert [item.key for item in waiting] == ["item-0"]
        assert [work.item for work in await scene.claim(back)] == ["item-0"]

    async def test_a_worker_that_drains_is_there(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        sessions = await fleet(scene)
        await scene.store.drain_worker("web-0", actor="operator")
        cart = await over(carts, job, replace(PARALLEL, within=SECOND))
        scene.advance(2 * SECOND)
        await sweep(scene)

        assert await stranded(carts, cart) == []
        assert await scene.claim(sessions["web-0"]) == []
        await scene.store.undrain_worker("web-0", actor="operator")
        assert [work.item for work in await scene.claim(sessions["web-0"])] == ["item-0"]


class TestWithin:
    async def miss_one(
        self, scene: Scene, carts: CartScene, job: JobId, rules: CartRules
    ) -> CartId:
        """Let the worker of the first item be gone for too long."""
        await fleet(scene, WEB[1:])
        cart = await over(carts, job, replace(rules, within=10 * SECOND))
        scene.advance(10 * SECOND)
        await sweep(scene)
        return cart

    async def test_an_item_that_waits_for_too_long_has_failed(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await self.miss_one(scene, carts, job, PARALLEL)

        shown = await carts.show(cart)
        run = await scene.show(await run_of(carts, cart, 0))
        [group] = await scene.store.failure_groups(cart, 10)
        assert (run.state, run.cause) == (RunState.MISSED, Cause.NO_WORKER)
        assert (await carts.states(cart))[0] is ItemState.FAILED
        assert (group.cause, group.key) == (Cause.NO_WORKER, "item-0")
        # In the transaction of the sweep: no other item was given to a worker in between.
        assert (shown.state, shown.reason, shown.failed) == (CartState.PAUSED, "failures", 1)

    async def test_it_is_no_failure_too_many_where_some_are_allowed(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        rules = replace(PARALLEL, failures=allowing(1))
        cart = await self.miss_one(scene, carts, job, rules)
        sessions = await fleet(scene)
        await carts.advance(cart)
        for name in WEB[1:]:
            await carts.work(cart, sessions[name])

        shown = await carts.advance(cart)

        assert (shown.state, shown.completed, shown.failed) == (CartState.PARTIAL, 2, 1)

    async def test_a_retry_of_what_failed_goes_to_the_same_worker(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await self.miss_one(scene, carts, job, PARALLEL)
        back = await scene.worker("web-0")

        await carts.command(cart, RetryItems(Selection(FAILED_ITEM_STATES)))
        await carts.command(cart, ResumeCart())
        await carts.advance(cart)

        assert [work.item for work in await scene.claim(back)] == ["item-0"]

    async def test_a_claim_does_not_miss_it(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        """The failure could not be counted there, before others of the cart are given away."""
        sessions = await fleet(scene, WEB[1:])
        cart = await over(carts, job, replace(PARALLEL, within=10 * SECOND))
        scene.advance(10 * SECOND)

        await scene.claim(sessions["web-1"])

        assert await scene.state(await run_of(carts, cart, 0)) is RunState.BLOCKED

    async def test_while_the_cart_is_paused_the_wait_stands_still(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await over(carts, job, replace(PARALLEL, within=10 * SECOND))
        await carts.command(cart, PauseCart())
        scene.advance(WITHIN)
        await sweep(scene)
        during = await scene.state(await run_of(carts, cart, 0))

        await carts.command(cart, ResumeCart())
        await sweep(scene)

        assert during is RunState.BLOCKED
        assert [item.until for item in await stranded(carts, cart)] == [
            scene.clock.instant + 10 * SECOND
        ] * len(WEB)

    async def test_a_cart_that_is_cancelled_ends_the_wait(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        cart = await over(carts, job)

        await carts.command(cart, CancelCart())

        assert (await carts.advance(cart)).state is CartState.CANCELLED

    async def test_runs_of_no_cart_wait_for_ever(self, scene: Scene) -> None:
        [run] = await scene.trigger(await scene.job(needs={"worker": "web-1"}))
        scene.advance(WITHIN)
        await sweep(scene)

        assert await scene.state(run) is RunState.BLOCKED
