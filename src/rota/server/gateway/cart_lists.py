"""Which carts and items a list is to have, and where its next part begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from rota.domain.carts.states import ItemState
from rota.domain.errors import Invalid, Problem
from rota.domain.ids import instant, micros
from rota.domain.schedule.sources import LAST_MICROS
from rota.ports.carts import Cart, CartQuery, Item, ItemQuery
from rota.server.gateway.filters import CartFilter, states_named
from rota.server.gateway.paging import bad_cursor, decode_cursor, encode_cursor

_MICROS = re.compile(r"[0-9]{1,20}")


def cart_query(project: str, wanted: CartFilter, cursor: str | None, limit: int) -> CartQuery:
    """One more than the part has room for, to see whether there are more."""
    return CartQuery(
        project=project,
        name_like=wanted.name_like,
        states=sorted(wanted.states or ()),
        before=_position(cursor),
        limit=limit + 1,
    )


def cart_cursor(cart: Cart) -> str:
    return encode_cursor("carts", f"{micros(cart.created_at)} {cart.id}")


def _position(cursor: str | None) -> tuple[datetime, str] | None:
    """When the last cart of the part before was made, and its id; None: from the beginning."""
    if cursor is None:
        return None
    at, _, cart = decode_cursor("carts", cursor, "").partition(" ")
    if not _MICROS.fullmatch(at) or int(at) > LAST_MICROS:
        raise bad_cursor()
    return instant(int(at)), cart


def item_query(
    cart: Cart,
    *,
    states: Sequence[str],
    wave: int | None,
    cause: str | None,
    keys: Sequence[str],
    cursor: str | None,
    limit: int,
) -> ItemQuery:
    """The same for items; states are told as in `failed,timed_out`."""
    return ItemQuery(
        cart=cart.id,
        states=sorted(_item_states(states)),
        wave=wave,
        cause=cause,
        keys=keys or None,
        after=decode_cursor("cart_items", cursor, 0) - 1,
        limit=limit + 1,
    )


def item_cursor(item: Item) -> str:
    return encode_cursor("cart_items", item.number + 1)


def _item_states(told: Sequence[str]) -> set[ItemState]:
    try:
        return {state for each in told for state in states_named(each, ItemState)}
    except ValueError as error:
        problem = Problem(f"state: {error}", "state")
        raise Invalid("the filter cannot be read", [problem], code="bad_filter") from error
