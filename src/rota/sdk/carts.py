"""Calls about carts, and about their templates: carts that job files define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import msgspec

from rota.api.answers import Page
from rota.api.carts import (
    Cart,
    CartDetail,
    CartItem,
    CartPlan,
    CartTemplate,
    CartTemplateDetail,
    CartWave,
    Cells,
    CommandedCart,
    FailureGroup,
)
from rota.api.events import Event
from rota.sdk.exchange import (
    NDJSON,
    Body,
    Call,
    Inputs,
    Instant,
    get,
    patch,
    path_of,
    post,
    to_json,
)
from rota.sdk.verbs import Verb

T = TypeVar("T")

# key, and where needed order, with, job, needs; Raw: encoded
Item = Mapping[str, object] | msgspec.Raw
Select = Literal["failed", "failed+skipped", "all"]

_PIECE = 64 * 1024


def submit_cart(
    cart: Mapping[str, object],
    items: Iterable[Item],
    *,
    count: int | None = None,
    at: Instant | None = None,
    key: str | None = None,
) -> Call[Cart]:
    """Submit a cart, given as in a job file but for its items, which are sent as they come.

    `count` says how many items come if they have no length. The same `key` again gives the same
    cart; without one a key is generated, so that a broken connection can never submit twice.
    """
    return _with_items(post(Cart, "/carts"), cart, items, count, at).with_key(key)


def plan_cart(
    cart: Mapping[str, object],
    items: Iterable[Item],
    *,
    count: int | None = None,
    at: Instant | None = None,
) -> Call[CartPlan]:
    """Plan the submission of a cart; refuses what submitting would refuse."""
    return _with_items(post(CartPlan, "/carts", plan=True), cart, items, count, at)


def submit_template(
    template: str,
    inputs: Inputs | None = None,
    *,
    at: Instant | None = None,
    key: str | None = None,
) -> Call[Cart]:
    """Submit a cart that was applied before; the inputs are for every item of it."""
    return post(Cart, "/carts", _of_template(template, inputs, at)).with_key(key)


def plan_template(
    template: str, inputs: Inputs | None = None, *, at: Instant | None = None
) -> Call[CartPlan]:
    """Plan the submission of a cart that was applied before."""
    return post(CartPlan, "/carts", _of_template(template, inputs, at), plan=True)


def list_carts(
    *,
    where: str | None = None,
    state: str | None = None,
    name: str | None = None,
    active: bool | None = None,
    created_by: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Cart]]:
    """List carts, newest first; `where` is a filter such as `state:running name:upgrade-*`.

    `created_by` is `me`, or for admins anybody's handle.
    """
    call = get(Page[Cart], "/carts", where=where, state=state, name=name, active=active)
    return call.with_query(created_by=created_by, limit=limit, cursor=cursor)


def get_cart(cart: str) -> Call[CartDetail]:
    """Get a cart by id, by a prefix that only one has, or the newest of that name."""
    return get(CartDetail, path_of("carts", cart))


def list_cart_items(
    cart: str,
    *,
    state: str | Sequence[str] | None = None,
    wave: int | None = None,
    cause: str | None = None,
    key: str | Sequence[str] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[CartItem]]:
    """List the items of a cart in their order; those for which all conditions hold."""
    call = get(Page[CartItem], path_of("carts", cart, "items"), limit=limit, cursor=cursor)
    return call.with_query(state=state, wave=wave, cause=cause, key=key)


def list_cart_waves(
    cart: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[CartWave]]:
    """List the waves of a cart by number."""
    return get(Page[CartWave], path_of("carts", cart, "waves"), limit=limit, cursor=cursor)


def list_cart_failure_groups(cart: str, *, limit: int | None = None) -> Call[Page[FailureGroup]]:
    """List why items failed, the most frequent cause first."""
    return get(Page[FailureGroup], path_of("carts", cart, "failure-groups"), limit=limit)


def get_cart_events(
    cart: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Event]]:
    """List the events of a cart, in order."""
    return get(Page[Event], path_of("carts", cart, "events"), limit=limit, cursor=cursor)


def get_cart_cells(cart: str) -> Call[Cells]:
    """Get the state of each item, a letter each."""
    return get(Cells, path_of("carts", cart, "cells"))


def pause_cart(cart: str) -> Call[CommandedCart]:
    """Start nothing more, retries included; what workers hold goes on to its end."""
    return post(CommandedCart, f"{path_of('carts', cart)}:pause")


def resume_cart(cart: str, *, allow: int | str | None = None) -> Call[CommandedCart]:
    """Resume a cart; `allow` raises how many may fail, 30 or "3%"."""
    document = None if allow is None else {"allow": allow}
    return post(CommandedCart, f"{path_of('carts', cart)}:resume", document)


def cancel_cart(
    cart: str, *, running: Literal["stop", "finish"] | None = None
) -> Call[CommandedCart]:
    """Start nothing more and end it; `running` says what becomes of what workers hold."""
    document = None if running is None else {"running": running}
    return post(CommandedCart, f"{path_of('carts', cart)}:cancel", document)


def approve_cart(cart: str, *, wave: int | None = None) -> Call[CommandedCart]:
    """Let the next wave begin, if it is this one; the cart's submitter may not approve."""
    document = None if wave is None else {"wave": wave}
    return post(CommandedCart, f"{path_of('carts', cart)}:approve", document)


def retry_cart(
    cart: str,
    select: Select = "failed",
    *,
    from_wave: int | None = None,
    keys: Sequence[str] | None = None,
    cause: str | None = None,
) -> Call[CommandedCart]:
    """Run items that have ended once more, in their waves; all conditions hold together."""
    given = {"select": select, "from_wave": from_wave, "keys": keys, "cause": cause}
    return post(CommandedCart, f"{path_of('carts', cart)}:retry", _only_given(given))


def edit_cart(
    cart: str,
    *,
    max_parallel: int | None = None,
    failures: Mapping[str, object] | None = None,
    between: Mapping[str, object] | None = None,
    items: Sequence[Mapping[str, object]] | None = None,
    if_match: str | None = None,
) -> Call[CommandedCart]:
    """Change its rules, and items of waves that are not open yet: {key, order, with, skip}."""
    given = {"max_parallel": max_parallel, "failures": failures, "between": between, "items": items}
    return patch(CommandedCart, path_of("carts", cart), _only_given(given)).if_match(if_match)


def list_cart_templates(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[CartTemplate]]:
    """List carts that were applied, by name."""
    return get(Page[CartTemplate], "/cart-templates", limit=limit, cursor=cursor)


def get_cart_template(template: str) -> Call[CartTemplateDetail]:
    """Get a cart that was applied, with its document."""
    return get(CartTemplateDetail, path_of("cart-templates", template))


def delete_cart_template(template: str, *, if_match: str | None = None) -> Call[None]:
    """Delete a cart that was applied; carts submitted from it go on."""
    call = Call(type(None), "DELETE", path_of("cart-templates", template))
    return call.if_match(if_match)


def rollback_cart(cart: str) -> Call[Cart]:
    """Run the rollback job of a stopped cart for its started items; returns the new cart."""
    return post(Cart, f"{path_of('carts', cart)}:rollback")


def plan_rollback(cart: str) -> Call[CartPlan]:
    """Plan the rollback of a stopped cart."""
    return post(CartPlan, f"{path_of('carts', cart)}:rollback", plan=True)


class CartVerbs:
    approve_cart = Verb(approve_cart)
    cancel_cart = Verb(cancel_cart)
    delete_cart_template = Verb(delete_cart_template)
    edit_cart = Verb(edit_cart)
    get_cart = Verb(get_cart)
    get_cart_cells = Verb(get_cart_cells)
    get_cart_events = Verb(get_cart_events)
    get_cart_template = Verb(get_cart_template)
    list_cart_failure_groups = Verb(list_cart_failure_groups)
    list_cart_items = Verb(list_cart_items)
    list_cart_templates = Verb(list_cart_templates)
    list_cart_waves = Verb(list_cart_waves)
    list_carts = Verb(list_carts)
    pause_cart = Verb(pause_cart)
    plan_cart = Verb(plan_cart)
    plan_rollback = Verb(plan_rollback)
    plan_template = Verb(plan_template)
    resume_cart = Verb(resume_cart)
    retry_cart = Verb(retry_cart)
    rollback_cart = Verb(rollback_cart)
    submit_cart = Verb(submit_cart)
    submit_template = Verb(submit_template)


def encoded_item(
    key: str,
    inputs: Mapping[str, object],
    *,
    order: int | None = None,  # None: assigned by the cart's order
    job: str = "",  # "": the cart's
    needs: Mapping[str, str] | None = None,  # labels of its worker, over those of its job
) -> msgspec.Raw:
    """Encode an item as a line of JSON, which takes less memory than an object does."""
    given = {
        "key": key,
        "order": order,
        "with": inputs or None,
        "job": job or None,
        "needs": needs or None,
    }
    present = {name: value for name, value in given.items() if value is not None}
    return msgspec.Raw(to_json(present))


@dataclass(frozen=True, slots=True)
class _Lines:
    """Header and items as lines of JSON; iterated again each time they are sent."""

    header: bytes
    items: Iterable[Item]

    def __iter__(self) -> Iterator[bytes]:
        return _pieces(self.header, self.items)


def _pieces(header: bytes, items: Iterable[Item]) -> Iterator[bytes]:
    piece = bytearray(header + b"\n")
    for item in items:
        piece += to_json(item)
        piece += b"\n"
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _with_items(
    call: Call[T],
    cart: Mapping[str, object],
    items: Iterable[Item],
    count: int | None,
    at: Instant | None,
) -> Call[T]:
    if count is None:
        if not isinstance(items, Sized):
            raise TypeError("say with count= how many items an iterator has")
        count = len(items)
    header = to_json(_only_given({**cart, "count": count, "starts_at": at}))
    can_repeat = not isinstance(items, Iterator)
    body: Body = _Lines(header, items) if can_repeat else _pieces(header, items)
    return replace(call, headers=NDJSON, body=body)


def _of_template(template: str, inputs: Inputs | None, at: Instant | None) -> dict[str, Any]:
    return _only_given({"template": template, "with": inputs or None, "starts_at": at})


def _only_given(fields: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
