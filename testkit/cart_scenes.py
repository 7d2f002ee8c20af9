"""Carts for tests of the store and what is built on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.domain.carts.definition import CartRules, Failures, Order, Share
from rota.domain.carts.facts import ItemState
from rota.domain.carts.intake import NewItem, wave_of_each
from rota.domain.ids import CartId, JobId, SessionId, new_cart_id
from rota.domain.run import AttemptResult
from rota.domain.shape import WORKER
from rota.ports.carts import Cart, CartQuery, Command, Commanded, Item, ItemQuery, NewCart
from rota.ports.work import Work
from testkit.builders import Scene

SUBMITTER = "ann"


def allowing(count: int | str, **fields: Any) -> Failures:
    """Allow so many failures."""
    share = Share(count) if isinstance(count, int) else Share(int(count.rstrip("%")), True)
    return Failures(share, **fields)


@dataclass(frozen=True, slots=True)
class CartScene:
    """Submits carts and acts as their worker."""

    scene: Scene

    async def submit(
        self, job: JobId, rules: CartRules | None = None, *, items: int = 3, **fields: Any
    ) -> CartId:
        """Submit a cart of items `item-0`, `item-1`, …; it has not begun yet."""
        cart = await self.fill(job, rules or CartRules(), items=items, **fields)
        return await self.scene.store.submit_cart(cart)

    async def fill(self, job: JobId, rules: CartRules, *, items: int, **fields: Any) -> CartId:
        """Create such a cart without submitting it.

        `waves` are the order numbers of its items, `workers` those that each of them is for.
        """
        workers: Sequence[str] = fields.pop("workers", ())
        waves: Sequence[int] | None = fields.pop("waves", None)
        numbers = waves or list(wave_of_each(rules.order, items, rules.group_sizes))
        version = (await self.scene.show_job(job)).version
        cart = new_cart_id()
        name = fields.pop("name", "rollout")
        new = NewCart(cart, "default", name, rules, len(numbers), SUBMITTER, {}, **fields)
        await self.scene.store.create_cart(new)
        named = [{WORKER: worker} for worker in workers]
        needs: Sequence[Mapping[str, str] | None] = named or [None] * len(numbers)
        made = [
            NewItem(f"item-{n}", wave, job, version, None, own)
            for n, (wave, own) in enumerate(zip(numbers, needs, strict=True))
        ]
        await self.scene.store.add_items(cart, 0, made)
        return cart

    async def advance(self, cart: CartId, closed_until: datetime | None = None) -> Cart:
        """Advance a cart until it has nothing more to do by itself."""
        while (await self.scene.store.advance_cart(cart, closed_until)).has_more:
            pass
        return await self.show(cart)

    async def show(self, cart: CartId) -> Cart:
        [found] = await self.scene.store.carts(CartQuery(ids=[cart]))
        return found

    async def items(self, cart: CartId, **fields: Any) -> list[Item]:
        return await self.scene.store.items(ItemQuery(cart, limit=10_000, **fields))

    async def states(self, cart: CartId) -> list[ItemState]:
        return [item.state for item in await self.items(cart)]

    async def command(self, cart: CartId, command: Command, actor: str = "bob") -> Commanded:
        return await self.scene.store.command_cart(cart, command, actor=actor)

    async def work(
        self,
        cart: CartId,
        session: SessionId,
        failing: Sequence[str] = (),
        most: int = 1_000,
    ) -> list[str]:
        """Finish up to so many queued items; those named fail. Return their keys."""
        works = await self.scene.claim(session, most)
        for work in works:
            is_bad = work.item in failing
            result = AttemptResult.FAILED if is_bad else AttemptResult.COMPLETED
            await self.scene.finish(session, [work], result=result)
        return [_key(work) for work in works]

    async def play(
        self, cart: CartId, session: SessionId, failing: Sequence[str] = ()
    ) -> tuple[Cart, list[list[str]]]:
        """Work until the cart ends or stops; return it, and the keys in flight together."""
        flights: list[list[str]] = []
        while True:
            shown = await self.advance(cart)
            keys = await self.work(cart, session, failing)
            if not keys:
                return shown, flights
            flights.append(keys)


def _key(work: Work) -> str:
    assert work.item is not None
    return work.item


PARALLEL = CartRules(Order.PARALLEL)
