"""A cart that a program fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar, overload

import msgspec

from rota.sdk.cart_handles import AsyncCartHandle, CartHandle
from rota.sdk.cart_items import encoded_item
from rota.sdk.functions import JobFunction
from rota.sdk.options import plain

if TYPE_CHECKING:
    from rota.sdk.app import App
    from rota.sdk.async_client import AsyncClient
    from rota.sdk.cart_answers import CartPlan
    from rota.sdk.client import Client

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MOST_ITEMS = 100_000


class FailureOptions(TypedDict, total=False):
    """How many items may fail, and what happens when one more does."""

    allow: int | str  # "2%": of all items
    of: Literal["cart", "wave"]
    then: Literal["pause", "cancel", "continue"]
    strict: bool


class BetweenOptions(TypedDict, total=False):
    """What stands between two waves."""

    wait: str | timedelta
    check: str  # a job
    approve: str  # a role


class CartOptions(TypedDict, total=False):
    """The fields of a job file's cart that a program may give; that page describes each."""

    order: Literal["serial", "parallel", "groups"]
    group_size: int | str | Sequence[int | str]
    max_parallel: int
    failures: FailureOptions
    between: BetweenOptions
    calendars: Sequence[str]
    rollback: str
    priority: int
    description: str
    labels: Mapping[str, str]


class CartDraft:
    """What `app.cart` makes: items are added, and nothing is sent before `plan` or `submit`."""

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
        """An item: a job of this app or the name of any, and its arguments.

        For arguments that are themselves called `job`, `key` or `order` there is `add_item`.
        """
        if isinstance(job, JobFunction):
            self.add_item(job.name, key, job.parameters.pack(args, inputs), order)
        else:
            self.add_item(job, key, inputs, order)

    def add_item(
        self, job: str, key: str, inputs: Mapping[str, object], order: int | None = None
    ) -> None:
        """An item with inputs by name."""
        if key in self._items:
            raise ValueError(f'cart {self.name} already has an item with the key "{key}"')
        if len(self._items) == MOST_ITEMS:
            raise ValueError(f"a cart has at most {MOST_ITEMS:,} items")
        self._job = self._job or job
        own_job = "" if job == self._job else job
        self._items[key] = encoded_item(key, inputs, order=order, job=own_job)

    def plan(self) -> CartPlan:
        """What submitting it would do: print it. Refuses what that would refuse."""
        return self._client.plan_cart(self._document(), self._items.values())

    async def aplan(self) -> CartPlan:
        """`plan` for an event loop."""
        return await self._async_client.plan_cart(self._document(), self._items.values())

    def submit(self, *, key: str | None = None, at: datetime | str | None = None) -> CartHandle:
        """Hand it in, to start now or `at` a time. The same `key` again gives the same cart."""
        client = self._client
        cart = client.submit_cart(self._document(), self._items.values(), key=key, at=at)
        return CartHandle(cart.id, client)

    async def asubmit(
        self, *, key: str | None = None, at: datetime | str | None = None
    ) -> AsyncCartHandle:
        """`submit` for an event loop."""
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
        from rota.sdk.async_client import AsyncClient

        return _real(self.app.async_client, AsyncClient)


def _real(client: object, kind: type[T]) -> T:
    if not isinstance(client, kind):
        raise TypeError("carts need a server: a test without one cannot submit them")
    return client
