"""People who submit carts, and pause, resume and cancel them."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from random import Random

from rota.domain.carts.definition import Between, CartRules, Failures, OnBreach, Order, Scope, Share
from rota.domain.carts.facts import CartState
from rota.domain.carts.intake import NewItem, wave_of_each
from rota.domain.errors import Conflict
from rota.domain.ids import CartId, JobId, new_cart_id, shard_of
from rota.ports.carts import CancelCart, NewCart, PauseCart, ResumeCart
from testkit.universes.catalogue import CART_JOBS, PROJECT, catalogue, shards
from testkit.universes.surroundings import Surroundings
from testkit.universes.world import World

_THIRD, _ALL = (Share(Decimal(percent), is_percent=True) for percent in (33, 100))


class CartPeople:
    """People who steer the carts that they have submitted."""

    def __init__(self, world: World, surroundings: Surroundings) -> None:
        self._world = world
        self._witness = surroundings.witness
        self._random = surroundings.random
        self.carts: list[CartId] = []

    async def submit(self) -> None:
        random, cart = self._random, _new_id()
        rules, count = _rules(random), random.randint(2, 6)
        waves = wave_of_each(rules.order, count, rules.group_sizes)
        items = [_item(random, number, wave) for number, wave in enumerate(waves)]
        name = f"cart-{len(self.carts)}"
        self._witness.note("cart", (cart, rules.order, *(item.job_id for item in items)))
        self._witness.carts.submitted(cart, rules, {item.key: item.wave for item in items})
        self.carts.append(cart)
        new = NewCart(cart, PROJECT, name, rules, count, "ann", document={})
        await self._world.submit_cart(new, items)

    async def steer(self) -> None:
        """Command any of the carts; it may have ended, or not be paused at all."""
        if self.carts:
            act = self._random.choice((self._pause, self._pause, self._resume, self._cancel))
            with suppress(Conflict):
                await act(self._random.choice(self.carts))

    async def resume_all(self) -> None:
        """Resume carts that too many failures paused, whatever fails from then on.

        One that is coming to an early end may still look paused: that is refused, and needs nobody.
        """
        for cart in await self._world.all_carts():
            if cart.state is CartState.PAUSED:
                try:
                    await self._resume(cart.id)
                except Conflict:
                    with suppress(Conflict):
                        await self._resume(cart.id, _ALL)

    async def _pause(self, cart: CartId) -> None:
        await self._world.command_cart(cart, PauseCart())
        self._witness.note("cart paused", cart)
        self._witness.carts.stopped(cart, is_cancelled=False)

    async def _resume(self, cart: CartId, allow: Share | None = None) -> None:
        await self._world.command_cart(cart, ResumeCart(allow))
        self._witness.note("cart resumed", cart)
        self._witness.carts.resumed(cart, allow)

    async def _cancel(self, cart: CartId) -> None:
        await self._world.command_cart(cart, CancelCart())
        self._witness.note("cart cancelled", cart)
        self._witness.carts.stopped(cart, is_cancelled=True)


def _new_id() -> CartId:
    """Create an id in one of the existing shards."""
    while shard_of(cart := new_cart_id()) not in shards():
        pass
    return cart


def _rules(random: Random) -> CartRules:
    return CartRules(
        order=random.choice((Order.SERIAL, Order.PARALLEL, Order.GROUPS)),
        group_sizes=random.choice(((Share(2),), (Share(1), _THIRD))),
        max_parallel=random.choice((None, 1, 2)),
        failures=Failures(
            allow=random.choice((Share(0), Share(0), Share(1), _THIRD)),
            scope=random.choice(list(Scope)),
            then=random.choice((*OnBreach, OnBreach.PAUSE, OnBreach.CANCEL)),
            strict=random.random() < 0.5,
        ),
        between=Between(wait=timedelta(seconds=random.choice((0, 0, 4)))),
    )


def _item(random: Random, number: int, wave: int) -> NewItem:
    job = catalogue()[JobId(f"j_{random.choice(CART_JOBS)}")]
    return NewItem(f"item-{number}", wave, job.id, 1, job.wish(random))
