"""A cart as applied: the rules and items that each submission of it begins with.

Instances come from `rota.domain.jobfile` only; whoever holds one may trust every field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rota.domain.carts.definition import CartRules, Order
from rota.domain.spec import Schedule

MAX_ORDER = 1_000_000_000
ITEM_FILE = r"[^\x00-\x1f\x7f]*\.(?:csv|json|jsonl)"  # the path of one


@dataclass(frozen=True, slots=True)
class CartItem:
    """One entry of a cart."""

    key: str  # unique in the cart
    order: int | None = None  # the number of its wave; None: assigned by the cart's order
    inputs: Mapping[str, object] = field(default_factory=dict)  # as given, without defaults
    job: str = ""  # "": the cart's


@dataclass(frozen=True, slots=True)
class ItemsFile:
    """Items in a file."""

    path: str  # relative to the job file, unless absolute

    @property
    def is_csv(self) -> bool:
        """Whether it is a table, whose items cannot name their own jobs."""
        return self.path.endswith(".csv")


@dataclass(frozen=True, slots=True)
class LiveWorkers:
    """An item for each live worker that has the labels."""

    labels: Mapping[str, str]  # empty: all workers


ItemSource: TypeAlias = "tuple[CartItem, ...] | ItemsFile | LiveWorkers"


@dataclass(frozen=True, slots=True)
class CartTemplate:
    name: str  # unique among the carts of its project
    rules: CartRules
    items: ItemSource
    order_is_written: bool = False  # then items that bring their own numbers are refused
    job: str = ""  # of the items that name none; "": each of them names one
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule | None = None  # None: on demand
    rollback: str = ""  # the job that undoes an item on request; "": there is none
    priority: int | None = None  # None: that of each job

    def with_items(self, items: tuple[CartItem, ...]) -> CartTemplate:
        """The template with its items found; numbers of their own make the order explicit."""
        is_numbered = any(item.order is not None for item in items)
        order = Order.EXPLICIT if is_numbered else self.rules.order
        return replace(self, items=items, rules=replace(self.rules, order=order))
