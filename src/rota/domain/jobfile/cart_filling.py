"""Carts of a file given the items that their files have, read by whoever has those files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rota.domain.jobfile.report import At
from rota.domain.schedule.quoting import quoted

ItemDocuments: TypeAlias = Sequence[Mapping[str, Any]]


def fill_carts(written: Any, items: Mapping[str, ItemDocuments], root: At) -> Any:
    """The file as if its carts had these items written in it; what fits no cart is reported."""
    if not items:
        return written
    carts = written.get("carts") if isinstance(written, Mapping) else None
    found = carts if isinstance(carts, list) else []
    lacking = {cart["name"] for cart in found if _names_file(cart)}
    for name in sorted(items.keys() - lacking):
        message = f"items came for the cart {quoted(name)}, which names no file of them"
        root.child("carts").refuse(message)
    filled = [_filled(cart, items) if _names_file(cart) else cart for cart in found]
    return {**written, "carts": filled} if found else written


def _names_file(cart: Any) -> bool:
    if not isinstance(cart, Mapping):
        return False
    return isinstance(cart.get("name"), str) and isinstance(cart.get("items_from"), str)


def _filled(cart: Mapping[str, Any], items: Mapping[str, ItemDocuments]) -> Mapping[str, Any]:
    if cart["name"] not in items:
        return cart
    rest = {name: value for name, value in cart.items() if name != "items_from"}
    return {**rest, "items": list(items[cart["name"]])}
