"""Filling a cart with items, in transactions of their own, until it is submitted as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.carts.intake import NewItem
from rota.domain.carts.states import CartState
from rota.domain.errors import Conflict, NotFound, StaleTransition
from rota.domain.ids import CartId, shard_of
from rota.ports.carts import DueTemplate, NewCart
from rota.ports.records import Idempotency
from rota.store.rows import optional_micros, to_json
from rota.store.script import Many, Row, Script, lock, query
from rota.store.scripts.answering import first_answer
from rota.store.scripts.carts.templates import moved
from rota.store.tx import Tx

_CHUNK = 2_000  # rows in one transaction


def create(tx: Tx, cart: NewCart) -> Script[None]:
    """A cart that does nothing yet."""
    values = (
        cart.id,
        cart.project,
        cart.name,
        shard_of(cart.id),
        to_json(cart.document),
        to_json(cart.rules.to_document()),
        cart.items,
        cart.created_by,
        tx.now,
        optional_micros(cart.starts_at),
    )
    yield Many("insert_cart", [values])


def add_items(tx: Tx, cart: CartId, first: int, items: Sequence[NewItem]) -> Script[None]:
    """Items, in their order."""
    yield from _being_filled(cart)
    known = yield query("known_items", cart=cart, keys=[item.key for item in items])
    if known:
        raise Conflict(
            f'the cart has an item with the key "{known[0]["key"]}" already',
            code="duplicate_key",
            hint="give each item a key of its own",
            facts={"keys": [row["key"] for row in known[:10]]},
        )
    yield Many(
        "insert_item",
        [
            (
                cart,
                first + place,
                item.key,
                item.wave,
                item.job_id,
                item.job_version,
                None if item.inputs is None else to_json(item.inputs),
            )
            for place, item in enumerate(items)
        ],
    )


def submit(
    tx: Tx,
    cart: CartId,
    idempotency: Idempotency | None = None,
    due: DueTemplate | None = None,
) -> Script[CartId]:
    """From here on the cart lives, or it is as if it had never been."""
    answered = yield from first_answer(tx.now, idempotency, cart)
    if answered is not None:
        return CartId(answered)
    row = yield from _being_filled(cart)
    yield from refuse_second(row["project"], row["name"])
    [found] = yield query("count_items", cart=cart)
    if found["count"] != row["items"]:
        raise Conflict(
            f"{row['items']} items were announced, {found['count']} came", code="items_missing"
        )
    if due is not None:
        try:
            yield moved(due)
        except StaleTransition as error:
            raise Conflict("this due time has its cart", code="template_moved") from error
    yield Many("begin_cart", [(CartState.PLANNED, tx.now, cart)])
    facts = {"name": row["name"], "items": row["items"]}
    yield tx.record("cart.submitted", [cart], actor=row["created_by"], **facts)
    tx.effects.carts = True
    return cart


def refuse_second(project: str, name: str) -> Script[None]:
    """`Conflict` if a cart of this name is live."""
    for row in (yield query("live_cart", project=project, name=name)):
        raise Conflict(
            f"the cart {row['id']} of {name} has not ended",
            code="cart_is_live",
            hint=f"rota cart show {row['id']}; wait for its end, or cancel it",
            facts={"cart": row["id"]},
        )


def discard(tx: Tx, cart: CartId) -> Script[bool]:
    """Forget a cart that was not submitted, some items at a time; whether there are more.

    One that was submitted is left alone: whoever filled it may not have heard of that.
    """
    if (yield from _loading(cart)) is None:
        return False
    deleted = yield query("delete_items", cart=cart, limit=_CHUNK)
    if len(deleted) == _CHUNK:
        return True
    yield query("delete_cart", cart=cart)
    return False


def forgotten(before: int) -> Script[list[CartId]]:
    """Carts whose items stopped coming."""
    rows = yield query("forgotten_carts", before=before)
    return [CartId(row["id"]) for row in rows]


def _being_filled(cart: CartId) -> Script[Row]:
    row = yield from _loading(cart)
    if row is None:
        raise NotFound(f"no cart {cart} is being filled", code="cart_not_found")
    return row


def _loading(cart: CartId) -> Script[Row | None]:
    """A cart whose items are still coming, locked; None: there is none."""
    yield lock("carts", ids=[cart])
    for row in (yield query("carts_to_change", ids=[cart])):
        if row["state"] == "LOADING":
            return row
    return None
