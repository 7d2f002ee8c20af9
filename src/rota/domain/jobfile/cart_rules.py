"""What a cart's fields must satisfy together, beyond each being right by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rota.domain.carts.definition import Order
from rota.domain.carts.template import ItemsFile
from rota.domain.jobfile.build import Document
from rota.domain.jobfile.cart_fields import CART
from rota.domain.jobfile.kinds import INVALID
from rota.domain.jobfile.report import At, refuse_repeated
from rota.domain.jobfile.rules import check_schedule
from rota.domain.schedule.quoting import quoted

Written = Mapping[str, Any]


def check_carts(file: Document, written: Any, root: At) -> None:
    """Apply every rule to the carts of a file.

    `file` has passed its table; `written` is the same before that.
    """
    first: dict[str, At] = {}
    for index, document in enumerate(file.get("carts", ())):
        at = root.child("carts").child(index)
        if document is INVALID or at.report.is_full:
            continue
        raw = written["carts"][index]
        check_cart(document, raw, at.within(CART.scope(raw, at)))
        if name := document.get("name"):
            refuse_repeated(f"cart {name}", name, at.child("name"), first)


def check_cart(document: Document, written: Written, at: At) -> None:
    """Apply every rule to one cart."""
    _check_source(written, at)
    _check_jobs(document, written, at)
    _check_order(document, written, at)
    _check_group_size(document, written, at)
    _check_keys(document, at.child("items"))
    check_schedule(document, at)


def _has(written: Written, name: str) -> bool:
    return written.get(name) is not None


def _check_source(written: Written, at: At) -> None:
    if _has(written, "items") and _has(written, "items_from"):
        message = '"items" and "items_from" exclude each other'
        at.child("items_from").refuse_key(message, "leave one of them out")
    if not _has(written, "items") and not _has(written, "items_from"):
        at.refuse(f'{at.scope} has neither "items" nor "items_from"')


def _check_jobs(document: Document, written: Written, at: At) -> None:
    """Every item needs a job, its own or the cart's."""
    if _has(written, "job"):
        return
    source = document.get("items_from")
    if source is not None and not (isinstance(source, str) and not ItemsFile(source).is_csv):
        at.refuse(f'{at.scope} has no "job", which items from a table or from workers need')
    items = list(_written_items(written))
    without = [(index, item) for index, item in items if not _has(item, "job")]
    if without and len(without) == len(items):
        at.refuse(f'{at.scope} has no "job"', "name the job that its items run")
        return
    for index, item in without:
        place = at.child("items").child(index)
        place.refuse(f'{_called(item, index)} has no "job", and neither has the cart')


def _check_order(document: Document, written: Written, at: At) -> None:
    """Order numbers are all explicit or all assigned."""
    items = list(_written_items(written))
    numbered = [(index, item) for index, item in items if _has(item, "order")]
    if not numbered:
        return
    index, item = numbered[0]
    if _has(written, "order"):
        order = document.get("order", "order")
        message = f"the cart's order ({order}) assigns the numbers, so its items must have none"
        place = at.child("items").child(index).child("order")
        place.refuse_key(message, 'leave out either the "order" of the cart or those of its items')
    elif len(numbered) < len(items):
        bare, other = next(entry for entry in items if not _has(entry[1], "order"))
        message = f"{_called(other, bare)} has no order, but {_called(item, index)} has"
        at.child("items").child(bare).refuse(message, "give every item a number, or none")


def _check_group_size(document: Document, written: Written, at: At) -> None:
    order = document.get("order")
    if _has(written, "order") and order is None:
        return
    if order == Order.GROUPS and not _has(written, "group_size"):
        at.child("order").refuse("order: groups needs a group_size", "add one: group_size: 5")
    if order != Order.GROUPS and _has(written, "group_size"):
        at.child("group_size").refuse_key('"group_size" needs order: groups', "add order: groups")
    if order == Order.PARALLEL and _has(written, "between"):
        at.child("between").warn("nothing comes between: order: parallel makes a single wave")


def _check_keys(document: Document, at: At) -> None:
    first: dict[str, At] = {}
    for index, item in enumerate(document.get("items", ())):
        if item is not INVALID and (key := item.get("key")):
            refuse_repeated(f"key {quoted(key)}", key, at.child(index).child("key"), first)


def _written_items(written: Written) -> Iterator[tuple[int, Written]]:
    items = written.get("items")
    for index, item in enumerate(items if isinstance(items, list | tuple) else ()):
        if isinstance(item, Mapping):
            yield index, item


def _called(item: Written, index: int) -> str:
    key = item.get("key")
    return f"item {quoted(key)}" if isinstance(key, str) else f"item {index + 1}"
