"""Cart that a program fills, and its handle once it has been submitted."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    overload,
)

import msgspec

from rota.api.carts import CartDetail, CartPlan
from rota.sdk import carts
from rota.sdk.carts import Select, encoded_item
from rota.sdk.errors import CartFailed, CartPaused
from rota.sdk.following import wait_for_cart
from rota.sdk.functions import JobFunction
from rota.sdk.options import plain
from rota.sdk.verbs import Flow, ask, bound

if TYPE_CHECKING:
    from rota.sdk.app import App
    from rota.sdk.client import AsyncClient, Client

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MOST_ITEMS = 100_000


class FailureOptions(TypedDict, total=False):
    """Options for how many items may fail, and what happens when one more does."""

    allow: int | str  # "2%": of all items
    of: Literal["cart", "wave"]
    then: Literal["pause", "cancel", "continue"]
    strict: bool


class BetweenOptions(TypedDict, total=False):
    """Options for the gate between two waves."""

    wait: str | timedelta
    check: str  # a job
    approve: str  # a role


class CartOptions(TypedDict, total=False):
    """Fields of a job file's cart that a program may give; its reference page describes each."""

    order: Literal["serial", "parallel", "groups"]
    group_size: int | str | Sequence[int | str]
    max_parallel: int
    within: str
    failures: FailureOptions
    between: BetweenOptions
    calendars: Sequence[str]
    rollback: str
    priority: int
    description: str
    labels: Mapping[str, str]


class CartDraft:
    """Result of `app.cart`: items are added, and nothing is sent before `plan` or `submit`."""

    def __init__(self, app: App, name: str, options: CartOptions) -> None:
        self.app = app
        self.name = name
        self._options = options
        self._job = ""  # of the first item; items of the same one do not repeat it
        self._items: dict[str, msgspec.Raw] = {}  # by key

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def add(
        self,
        job: JobFunction[P, R, T],
        key: str,
        order: int | None = None,
        *args: P.args,
        **inputs: P.kwargs,
    ) -> None: ...

    @overload
    def add(self, job: str, key: str, order: int | None = None, **inputs: object) -> None: ...

    def add(self, job: Any, key: str, order: int | None = None, *args: Any, **inputs: Any) -> None:
        """Add an item: a job of this app or the name of any, and its arguments.

        Use `add_item` for arguments that are themselves called `job`, `key` or `order`, and to say
        which worker an item needs.
        """
        if isinstance(job, JobFunction):
            self.add_item(job.name, key, job.parameters.pack(args, inputs), order)
        else:
            self.add_item(job, key, inputs, order)

    def add_item(
        self,
        job: str,
        key: str,
        inputs: Mapping[str, object],
        order: int | None = None,
        *,
        needs: Mapping[str, str] | None = None,
    ) -> None:
        """Add an item with inputs by name.

        `needs` are labels of its worker, over those that its job needs: {"worker": "web-07"} is
        the one of that name.
        """
        if key in self._items:
            raise ValueError(f'cart {self.name} already has an item with the key "{key}"')
        if len(self._items) == MOST_ITEMS:
            raise ValueError(f"a cart has at most {MOST_ITEMS:,} items")
        self._job = self._job or job
        own_job = "" if job == self._job else job
        self._items[key] = encoded_item(key, inputs, order=order, job=own_job, needs=needs)

    def plan(self) -> CartPlan:
        """Return what submitting would do, to print. Refuses what submitting would refuse."""
        return self._client.plan_cart(self._document(), self._items.values())

    async def aplan(self) -> CartPlan:
        """Return the plan, from an event loop."""
        return await self._async_client.plan_cart(self._document(), self._items.values())

    def submit(self, *, key: str | None = None, at: datetime | str | None = None) -> CartHandle:
        """Submit it, to start now or `at` a time. The same `key` again gives the same cart."""
        client = self._client
        cart = client.submit_cart(self._document(), self._items.values(), key=key, at=at)
        return CartHandle(cart.id, client)

    async def asubmit(
        self, *, key: str | None = None, at: datetime | str | None = None
    ) -> AsyncCartHandle:
        """Submit it, from an event loop."""
        client = self._async_client
        cart = await client.submit_cart(self._document(), self._items.values(), key=key, at=at)
        return AsyncCartHandle(cart.id, client)

    def _document(self) -> dict[str, Any]:
        return {"name": self.name, "job": self._job or None, **plain(self._options)}

    @property
    def _client(self) -> Client:
        from rota.sdk.client import Client

        return _real(self.app.client, Client)

    @property
    def _async_client(self) -> AsyncClient:
        from rota.sdk.client import AsyncClient

        return _real(self.app.async_client, AsyncClient)


def _real(client: object, kind: type[T]) -> T:
    if not isinstance(client, kind):
        raise TypeError("carts need a server: a test without one cannot submit them")
    return client


def refresh(cart: str) -> Flow[Any, CartDetail]:
    """Get the cart as it is now."""
    return (yield from ask(carts.get_cart(cart)))


def watch(cart: str, timeout: float | None = None) -> Flow[Any, CartDetail]:
    """Wait until the cart has ended well: no more failures than allowed.

    Raise `CartPaused` when a person has to decide, `CartFailed` when it ended otherwise; a
    TimeoutError after so many seconds leaves it going.
    """
    settled = yield from wait_for_cart(cart, timeout)
    if settled.state == "PAUSED":
        raise CartPaused(settled)
    if settled.has_failed:
        raise CartFailed(settled)
    return settled


def pause(cart: str) -> Flow[Any, None]:
    """Start nothing more; what workers hold goes on to its end."""
    yield from ask(carts.pause_cart(cart))


def resume(cart: str, allow: int | str | None = None) -> Flow[Any, None]:
    """Resume; `allow` raises how many may fail, 30 or "3%"."""
    yield from ask(carts.resume_cart(cart, allow=allow))


def approve(cart: str, wave: int | None = None) -> Flow[Any, None]:
    """Let the next wave begin, if it is this one; the cart's submitter may not approve."""
    yield from ask(carts.approve_cart(cart, wave=wave))


def cancel(cart: str, running: Literal["stop", "finish"] = "stop") -> Flow[Any, None]:
    """Start nothing more and end it."""
    yield from ask(carts.cancel_cart(cart, running=running))


def retry(
    cart: str,
    *,
    failed: bool = True,
    skipped: bool = False,
    cause: str | None = None,
    keys: Sequence[str] | None = None,
    from_wave: int | None = None,
) -> Flow[Any, int]:
    """Run items once more, in their waves; returns how many.

    With neither `failed` nor `skipped`, all that have ended and for which the rest holds.
    """
    select = _select(failed, skipped)
    call = carts.retry_cart(cart, select, cause=cause, keys=keys, from_wave=from_wave)
    return (yield from ask(call)).affected


def _select(failed: bool, skipped: bool) -> Select:
    if skipped and not failed:
        raise TypeError("skipped items are retried together with failed ones")
    if skipped:
        return "failed+skipped"
    return "failed" if failed else "all"


class _Steering(Generic[P, T]):
    """Flow about one cart: a method of handles, which know the cart and have a client."""

    def __init__(self, flow: Callable[Concatenate[str, P], Flow[Any, T]]) -> None:
        self._flow = flow

    @overload
    def __get__(self, handle: None, owner: type) -> Callable[Concatenate[str, P], object]: ...
    @overload
    def __get__(self, handle: CartHandle, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, handle: AsyncCartHandle, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(
        self, handle: CartHandle | AsyncCartHandle | None, owner: type
    ) -> Callable[..., object]:
        if handle is None:
            return self._flow
        flow = MethodType(self._flow, handle.id)
        return bound(flow, handle.client.finish)


class _CartMethods:
    __slots__ = ()

    approve = _Steering(approve)
    cancel = _Steering(cancel)
    pause = _Steering(pause)
    refresh = _Steering(refresh)
    resume = _Steering(resume)
    retry = _Steering(retry)
    watch = _Steering(watch)


@dataclass(frozen=True, slots=True)
class CartHandle(_CartMethods):
    """Handle of a submitted cart."""

    id: str
    client: Client

    @property
    def url(self) -> str:
        return self.client.address_of_cart(self.id)


@dataclass(frozen=True, slots=True)
class AsyncCartHandle(_CartMethods):
    """Handle of a submitted cart, for an event loop."""

    id: str
    client: AsyncClient

    @property
    def url(self) -> str:
        return self.client.address_of_cart(self.id)
