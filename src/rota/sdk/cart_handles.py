"""A cart that was submitted, in the hands of whoever submitted it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rota.sdk.cart_calls import Select
from rota.sdk.errors import CartFailed, CartPaused

if TYPE_CHECKING:
    from rota.sdk.async_client import AsyncClient
    from rota.sdk.cart_answers import CartDetail
    from rota.sdk.client import Client


@dataclass(frozen=True, slots=True)
class CartHandle:
    id: str
    client: Client

    @property
    def url(self) -> str:
        return self.client.address_of_cart(self.id)

    def refresh(self) -> CartDetail:
        """The cart as it is now."""
        return self.client.get_cart(self.id)

    def watch(self, timeout: float | None = None) -> CartDetail:
        """The cart once it has ended well: nothing failed that may not.

        `CartPaused` when a person has to decide, `CartFailed` when it ended otherwise; a
        TimeoutError after so many seconds leaves it going.
        """
        return _ended_well(self.client.wait_for_cart(self.id, timeout))

    def pause(self) -> None:
        self.client.pause_cart(self.id)

    def resume(self, allow: int | str | None = None) -> None:
        """Go on; `allow` raises how many may fail, 30 or "3%"."""
        self.client.resume_cart(self.id, allow=allow)

    def approve(self, wave: int | None = None) -> None:
        """Let the next wave begin, if it is this one; whoever submitted the cart may not."""
        self.client.approve_cart(self.id, wave=wave)

    def cancel(self, running: Literal["stop", "finish"] = "stop") -> None:
        """Start nothing more and end it."""
        self.client.cancel_cart(self.id, running=running)

    def retry(
        self,
        *,
        failed: bool = True,
        skipped: bool = False,
        cause: str | None = None,
        keys: Sequence[str] | None = None,
        from_wave: int | None = None,
    ) -> int:
        """Run items once more, in their waves; returns how many.

        With neither `failed` nor `skipped`, all that have ended and for which the rest holds.
        """
        done = self.client.retry_cart(
            self.id, _select(failed, skipped), cause=cause, keys=keys, from_wave=from_wave
        )
        return done.affected


@dataclass(frozen=True, slots=True)
class AsyncCartHandle:
    """`CartHandle` for an event loop."""

    id: str
    client: AsyncClient

    @property
    def url(self) -> str:
        return self.client.address_of_cart(self.id)

    async def refresh(self) -> CartDetail:
        """The cart as it is now."""
        return await self.client.get_cart(self.id)

    async def watch(self, timeout: float | None = None) -> CartDetail:
        """The cart once it has ended well; the errors are those of `CartHandle.watch`."""
        return _ended_well(await self.client.wait_for_cart(self.id, timeout))

    async def pause(self) -> None:
        await self.client.pause_cart(self.id)

    async def resume(self, allow: int | str | None = None) -> None:
        """Go on; `allow` raises how many may fail, 30 or "3%"."""
        await self.client.resume_cart(self.id, allow=allow)

    async def approve(self, wave: int | None = None) -> None:
        """Let the next wave begin, if it is this one; whoever submitted the cart may not."""
        await self.client.approve_cart(self.id, wave=wave)

    async def cancel(self, running: Literal["stop", "finish"] = "stop") -> None:
        """Start nothing more and end it."""
        await self.client.cancel_cart(self.id, running=running)

    async def retry(
        self,
        *,
        failed: bool = True,
        skipped: bool = False,
        cause: str | None = None,
        keys: Sequence[str] | None = None,
        from_wave: int | None = None,
    ) -> int:
        """Run items once more, in their waves; returns how many."""
        done = await self.client.retry_cart(
            self.id, _select(failed, skipped), cause=cause, keys=keys, from_wave=from_wave
        )
        return done.affected


def _ended_well(cart: CartDetail) -> CartDetail:
    if cart.state == "PAUSED":
        raise CartPaused(cart)
    if cart.has_failed:
        raise CartFailed(cart)
    return cart


def _select(failed: bool, skipped: bool) -> Select:
    if skipped and not failed:
        raise TypeError("skipped items are retried together with failed ones")
    if skipped:
        return "failed+skipped"
    return "failed" if failed else "all"
