"""People, keepers and a worker at one cart at the same time: clear answers, consistent state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice

import pytest

from rota.domain.carts.definition import CartRules, Order, Share
from rota.domain.carts.facts import FINAL_ITEM_STATES, CartState, ItemState
from rota.domain.errors import Conflict
from rota.domain.ids import CartId, JobId, SessionId
from rota.ports.carts import CancelCart, Cart, Command, PauseCart, ResumeCart, RetryItems, Selection
from testkit.builders import Scene
from testkit.cart_scenes import CartScene, allowing
from tests.conformance.store.conftest import every_way

pytestmark = [pytest.mark.anyio, every_way]

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
