"""Definition of a cart: its rules, and the template with which each submission begins.

`CartRules` says in which order items go, how many may fail, and what stands between two waves. It
is stored with the cart in the words of the job file, so that a running cart keeps the rules it was
submitted with. `CartTemplate` adds what a job file defines beside them: items or where to find
them, the job, the schedule.

Instances come from `rota.domain.jobfile` only; whoever has one may trust every field. Percentages
are exact numbers: rounding of binary fractions would let one item more or less fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod
from typing import Any, TypeAlias, assert_never

from rota.domain.quantities import format_duration, parse_duration
from rota.domain.spec import Schedule

MAX_ITEMS = 100_000  # of one cart
Scalar: TypeAlias = str | int | float | bool
_SHARE = re.compile(r"(?P<value>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<percent>%?)", re.ASCII)


class Order(StrEnum):
    """Origin of the order numbers of the items."""

    SERIAL = "serial"  # each item has its own
    PARALLEL = "parallel"  # all have the same
    GROUPS = "groups"  # by group sizes
    EXPLICIT = "explicit"  # written at each item


class Scope(StrEnum):
    """Scope in which failures are counted together."""

    CART = "cart"
    WAVE = "wave"


class OnBreach(StrEnum):
    """Reaction when more items failed than may."""

    PAUSE = "pause"
    CANCEL = "cancel"
    CONTINUE = "continue"  # it is only recorded


@dataclass(frozen=True, slots=True)
class Share:
    """Number of items, or a percentage of them."""

    value: int | Decimal  # exact; a count is an int
    is_percent: bool = False

    def rounded_down(self, total: int) -> int:
        return floor(self._of(total))

    def rounded_up(self, total: int) -> int:
        return ceil(self._of(total))

    def _of(self, total: int) -> Fraction:
        value = Fraction(self.value)
        return value * total / 100 if self.is_percent else value

    def __str__(self) -> str:
        """Format it as `parse_share` reads it back: `5`, `2.5%`."""
        return f"{self.value:f}%" if self.is_percent else str(self.value)


@dataclass(frozen=True, slots=True)
class Failures:
    """Allowance of failed items, and the reaction when one more fails."""

    allow: Share = Share(0)
    scope: Scope = Scope.CART
    then: OnBreach = OnBreach.PAUSE
    strict: bool = False  # True: so few are in flight that the limit is exceeded by one at most


@dataclass(frozen=True, slots=True)
class Between:
    """Gates between two waves, in the order in which they are passed."""

    wait: timedelta = timedelta(0)  # from the end of the last item before
    check: str = ""  # job whose run has to complete; "": none
    approve: str = ""  # role of whoever has to agree; "": nobody


@dataclass(frozen=True, slots=True)
class CartRules:
    """Rules that decide which item of a cart may start, and when."""

    order: Order = Order.SERIAL
    group_sizes: tuple[Share, ...] = ()  # of GROUPS: a ramp, whose last value repeats
    max_parallel: int | None = None  # in flight at once; None: as many as fit
    failures: Failures = Failures()
    between: Between = Between()
    calendars: tuple[str, ...] = ()  # names of those in whose windows no wave is opened
    within: timedelta | None = None  # how long an item waits for a worker that is gone; None: ever

    def to_document(self) -> dict[str, Any]:
        """Convert to JSON, in the words of the job file; `from_document` reads it back."""
        failures, between = self.failures, self.between
        return {
            "order": self.order.value,
            "group_size": [str(size) for size in self.group_sizes],
            "max_parallel": self.max_parallel,
            "failures": {
                "allow": str(failures.allow),
                "of": failures.scope.value,
                "then": failures.then.value,
                "strict": failures.strict,
            },
            "between": {
                "wait": format_duration(between.wait),
                "check": between.check,
                "approve": between.approve,
            },
            "calendars": list(self.calendars),
            **({} if self.within is None else {"within": format_duration(self.within)}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> CartRules:
        """Read back what `to_document` wrote."""
        failures, between = document["failures"], document["between"]
        return cls(
            order=Order(document["order"]),
            group_sizes=tuple(map(parse_share, document["group_size"])),
            max_parallel=document["max_parallel"],
            failures=Failures(
                parse_share(failures["allow"]),
                Scope(failures["of"]),
                OnBreach(failures["then"]),
                failures["strict"],
            ),
            between=Between(parse_duration(between["wait"]), between["check"], between["approve"]),
            calendars=tuple(document["calendars"]),
            within=parse_duration(document["within"]) if "within" in document else None,
        )


def parse_share(text: str) -> Share:
    """Parse a count like `5`, or a percentage like `2.5%`; a ValueError says what is wrong."""
    match = _SHARE.fullmatch(text.strip())
    if not match:
        raise ValueError(f'"{text}" is neither a number of items nor a percentage: write 5 or 10%')
    value = Decimal(match["value"])
    if match["percent"]:
        if value > 100:
            raise ValueError(f'"{text}" is more than all: write at most 100%')
        return Share(value, is_percent=True)
    if "." in match["value"]:
        raise ValueError(f'"{text}" is no whole number of items: write 5, or 2.5% for a percentage')
    return Share(int(value))


MAX_ORDER = 1_000_000_000
ITEM_FILE = r"[^\x00-\x1f\x7f]*\.(?:csv|json|jsonl)"  # the path of one


@dataclass(frozen=True, slots=True)
class CartItem:
    """One entry of a cart."""

    key: str  # unique in the cart
    order: int | None = None  # the number of its wave; None: assigned by the cart's order
    inputs: Mapping[str, object] = field(default_factory=dict)  # as given, without defaults
    job: str = ""  # "": the cart's
    needs: Mapping[str, str] = field(default_factory=dict)  # labels, over those its job needs


@dataclass(frozen=True, slots=True)
class ItemsFile:
    """Items in a file."""

    path: str  # relative to the job file, unless absolute

    @property
    def is_csv(self) -> bool:
        """Return whether it is a table, whose items cannot name their own jobs."""
        return self.path.endswith(".csv")


@dataclass(frozen=True, slots=True)
class LiveWorkers:
    """Source of one item for each live worker that has the labels, which runs on that worker."""

    labels: Mapping[str, str]  # empty: all workers


ItemSource: TypeAlias = "tuple[CartItem, ...] | ItemsFile | LiveWorkers"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Lists of values for inputs, of which every combination is an item."""

    lists: Mapping[str, tuple[Scalar, ...]]
    exclude: tuple[Mapping[str, Scalar], ...] = ()  # values of a combination that is left out

    @property
    def size(self) -> int:
        """Return the number of combinations, those that are left out included."""
        return prod(map(len, self.lists.values()))

    def combinations(self) -> Iterator[dict[str, Scalar]]:
        """Yield what is not left out; the last list changes fastest."""
        for values in product(*self.lists.values()):
            found = dict(zip(self.lists, values, strict=True))
            if not any(each.items() <= found.items() for each in self.exclude):
                yield found

    def items(self) -> tuple[CartItem, ...]:
        return tuple(
            CartItem(key_of(found.values()), inputs=found) for found in self.combinations()
        )


def key_of(values: Iterable[Scalar]) -> str:
    """Return the key of the item of these values: `3.12/postgres`."""
    return "/".join(map(_in_key, values))


def _in_key(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class CartTemplate:
    name: str  # unique among the carts of its project
    rules: CartRules
    items: ItemSource
    order_is_written: bool = False  # then items that bring their own numbers are refused
    job: str = ""  # of the items that name none; "": each of them names one
    title: str = ""  # for people, in any script
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule | None = None  # None: on demand
    rollback: str = ""  # the job that undoes an item on request; "": there is none
    priority: int | None = None  # None: that of each job
    matrix: Matrix | None = None  # that the items were made of; None: they were not

    def with_items(self, items: tuple[CartItem, ...]) -> CartTemplate:
        """Set the items that were found; numbers of their own make the order explicit."""
        is_numbered = any(item.order is not None for item in items)
        order = Order.EXPLICIT if is_numbered else self.rules.order
        return replace(self, items=items, rules=replace(self.rules, order=order))


def template_in_words(template: CartTemplate) -> str:
    """Describe it without its times: `500 items in waves of 1, 5, 20, … · up to 2% may fail`."""
    return f"{_items(template)} {_order(template)} · {_failures(template.rules.failures)}"


def _items(template: CartTemplate) -> str:
    match template.items:
        case ItemsFile(path):
            return f"the items of {path}"
        case LiveWorkers(labels):
            wanted = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
            return f"each live worker with {wanted}" if wanted else "each live worker"
        case items:
            return "1 item" if len(items) == 1 else f"{len(items):,} items"


def _order(template: CartTemplate) -> str:
    rules = template.rules
    match rules.order:
        case Order.SERIAL:
            return "one after another"
        case Order.PARALLEL:
            return f"all at once{_at_most(rules)}"
        case Order.GROUPS:
            sizes = ", ".join(str(size) for size in rules.group_sizes)
            return f"in waves of {sizes}, …{_at_most(rules)}"
        case Order.EXPLICIT:
            return f"in the order of their numbers{_at_most(rules)}"
        case _:
            assert_never(rules.order)


def _at_most(rules: CartRules) -> str:
    return f", {rules.max_parallel:,} in flight" if rules.max_parallel else ""


def _failures(failures: Failures) -> str:
    scope = " of each wave" if failures.scope is Scope.WAVE else ""
    if not failures.allow.value:
        return f"none{scope} may fail"
    return f"up to {failures.allow}{scope} may fail"
