"""What happens to a cart at the same time as something else, or without anybody's asking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import cycle, islice

import pytest

from rota.domain.carts.definition import CartRules, OnBreach, Order, Share
from rota.domain.carts.facts import FINAL_ITEM_STATES, CartState, ItemState
from rota.domain.carts.intake import NewItem
from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import SHARD_COUNT, CartId, JobId, RunId, SessionId, shard_of
from rota.domain.spec import Delivery
from rota.domain.states import RunState
from rota.ports.carts import CancelCart, Cart, Command, PauseCart, ResumeCart, RetryItems, Selection
from rota.ports.records import Idempotency
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene, allowing
from tests.conformance.store.conftest import every_way

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


ITEMS = 30
GROUPS = CartRules(Order.GROUPS, (Share(3),), failures=allowing(0))
PRESSES = 40  # of each person
RETRY = RetryItems(Selection(FINAL_ITEM_STATES - {ItemState.COMPLETED}))


@dataclass(slots=True)
class Crew:
    """Keeps a cart going and does its items, until somebody says stop."""

    carts: CartScene
    cart: CartId
    worker: SessionId
    fails_once: set[str] = field(default_factory=set)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> None:
        while not self.over.is_set():
            await self.go_on()

    async def go_on(self) -> Cart:
        scene = self.carts.scene
        await self.carts.advance(self.cart)
        await scene.release()
        for work in await scene.claim(self.worker, 2):
            is_bad = work.item in self.fails_once
            self.fails_once -= {work.item}
            await scene.finish(self.worker, [work], "FAILED" if is_bad else "COMPLETED")
        return await self.carts.advance(self.cart)

    async def finish(self) -> Cart:
        """Retry and resume until all of it is completed."""
        for _ in range(10 * ITEMS):
            if (await self.go_on()).state is CartState.COMPLETED:
                break
            for command in (RETRY, ResumeCart()):
                with suppress(Conflict):
                    await self.carts.command(self.cart, command)
        return await self.carts.show(self.cart)

    async def press(self, actor: str, commands: Sequence[Command]) -> set[str]:
        """Command after command; what became of them: `done`, or why not."""
        told = set()
        for command in islice(cycle(commands), PRESSES):
            try:
                await self.carts.command(self.cart, command, actor)
                told.add("done")
            except Conflict as error:
                told.add(error.code)
        return told


@every_way
async def test_two_who_pause_resume_and_retry_lose_and_repeat_nothing(
    carts: CartScene, job: JobId, worker: SessionId
) -> None:
    bad = {f"item-{number}" for number in range(0, ITEMS, 6)}
    crew = Crew(carts, await carts.submit(job, GROUPS, items=ITEMS), worker, set(bad))

    async def press() -> set[str]:
        answers = await asyncio.gather(
            crew.press("ann", [PauseCart(), ResumeCart(), RETRY, ResumeCart()]),
            crew.press("bob", [RETRY, ResumeCart(), PauseCart()]),
        )
        crew.over.set()
        return set.union(*answers)

    _, told = await asyncio.gather(crew.serve(), press())
    ended = await crew.finish()

    clear = {"done", "not_paused", "still_breached", "nothing_to_retry", "cart_final"}
    assert "done" in told <= clear
    assert (ended.state, ended.completed) == (CartState.COMPLETED, ITEMS)
    assert (ended.failed, ended.open, ended.pending) == (0, 0, 0)
    runs = {item.key: item.runs for item in await carts.items(crew.cart)}
    assert runs == {key: 2 if key in bad else 1 for key in runs}


@every_way
@pytest.mark.parametrize("after", [0, 7])
async def test_cart_that_is_cancelled_while_a_wave_opens_ends_clean(
    scene: Scene, carts: CartScene, job: JobId, worker: SessionId, after: int
) -> None:
    crew = Crew(carts, await carts.submit(job, GROUPS, items=ITEMS), worker)

    async def cancel() -> None:
        while (await carts.show(crew.cart)).completed < after:
            pass
        await carts.command(crew.cart, CancelCart())
        crew.over.set()

    await asyncio.gather(crew.serve(), crew.serve(), cancel())

    ended = await carts.advance(crew.cart)
    assert (ended.state, ended.open, ended.pending) == (CartState.CANCELLED, 0, 0)
    assert ended.completed + ended.cancelled + ended.skipped == ITEMS
    tried = {item.key for item in await carts.items(crew.cart, only_attempted=True)}
    states = {item.key: item.state for item in await carts.items(crew.cart)}
    assert {states[key] for key in tried} <= {ItemState.COMPLETED, ItemState.CANCELLED}
    assert {states[key] for key in states.keys() - tried} == {ItemState.SKIPPED}
    assert await scene.claim(worker, ITEMS) == []
