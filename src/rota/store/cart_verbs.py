"""The part of the store port that is about carts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from rota.domain.carts.intake import NewItem
from rota.domain.ids import CartId, JobId, micros
from rota.ports.carts import (
    Advanced,
    Cart,
    CartLook,
    CartQuery,
    Command,
    Commanded,
    DueTemplate,
    FailureGroup,
    Item,
    ItemQuery,
    MissedCarts,
    NewCart,
    Overview,
    Selection,
    Template,
    Wave,
)
from rota.ports.records import Idempotency, Wakes
from rota.store.driving import Driver, Urgency
from rota.store.scripts.carts import advancing, commanding, loading, reading, templates
from rota.store.scripts.rules import RulesBook


class CartVerbs:
    """Implements `rota.ports.carts.CartStore`."""

    _driver: Driver
    _book: RulesBook

    async def create_cart(self, cart: NewCart) -> None:
        await self._driver.write(lambda now: loading.create(now, cart), Urgency.API)

    async def add_items(self, cart: CartId, first: int, items: Sequence[NewItem]) -> None:
        await self._driver.write(lambda _: loading.add_items(cart, first, items), Urgency.API)

    async def submit_cart(
        self,
        cart: CartId,
        idempotency: Idempotency | None = None,
        due: DueTemplate | None = None,
    ) -> tuple[CartId, Wakes]:
        submitted, wakes = await self._driver.write(
            lambda now: loading.submit(now, cart, idempotency, due), Urgency.API
        )
        if submitted != cart:
            await self.discard_cart(cart)
        return submitted, wakes

    async def templates(self, project: str, names: Sequence[str] | None = None) -> list[Template]:
        return await self._driver.read(lambda _: templates.find(project, names))

    async def due_templates(self, shards: Collection[int], limit: int) -> list[Template]:
        return await self._driver.read(lambda now: templates.due(now, shards, limit), Urgency.CLAIM)

    async def pass_template(self, due: DueTemplate, missed: MissedCarts) -> None:
        await self._driver.write(lambda now: templates.pass_over(now, due, missed), Urgency.API)

    async def discard_cart(self, cart: CartId) -> None:
        while await self._driver.write(lambda _: loading.discard(cart), Urgency.API):
            pass

    async def carts(self, query: CartQuery) -> list[Cart]:
        return await self._driver.read(lambda _: reading.carts(query))

    async def items(self, query: ItemQuery) -> list[Item]:
        return await self._driver.read(lambda _: reading.items(query))

    async def versions_of_items(
        self, cart: CartId, selection: Selection
    ) -> list[tuple[JobId, int]]:
        return await self._driver.read(lambda _: reading.versions(cart, selection))

    async def waves(self, cart: CartId, after: int, limit: int) -> list[Wave]:
        return await self._driver.read(lambda _: reading.waves(cart, after, limit))

    async def overview(self, cart: Cart, waves: int) -> Overview:
        return await self._driver.read(lambda _: reading.overview(cart, waves))

    async def failure_groups(self, cart: CartId, limit: int) -> list[FailureGroup]:
        return await self._driver.read(lambda _: reading.failure_groups(cart, limit))

    async def cells(self, cart: CartId) -> list[str]:
        return await self._driver.read(lambda _: reading.cells(cart))

    async def command_cart(self, cart: CartId, command: Command, *, actor: str) -> Commanded:
        return await self._driver.write(
            lambda now: commanding.command(now, cart, command, actor), Urgency.API
        )

    async def carts_to_advance(self, shards: Collection[int], limit: int) -> list[CartLook]:
        return await self._driver.read(
            lambda now: reading.to_advance(now, shards, limit), Urgency.CLAIM
        )

    async def advance_cart(self, cart: CartId, closed_until: datetime | None) -> Advanced:
        return await self._driver.write(
            lambda now: advancing.advance(now, cart, closed_until, self._book), Urgency.CLAIM
        )

    async def next_cart_look(self) -> datetime | None:
        return await self._driver.read(lambda _: reading.next_look(), Urgency.CLAIM)

    async def next_template_due(self) -> datetime | None:
        return await self._driver.read(lambda _: templates.next_due(), Urgency.CLAIM)

    async def forget_loading_carts(self, before: datetime) -> int:
        carts = await self._driver.read(lambda _: loading.forgotten(micros(before)))
        for cart in carts:
            await self.discard_cart(cart)
        return len(carts)
