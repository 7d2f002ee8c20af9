"""How a cart is to go: its order, what may fail, and what stands between its waves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from math import ceil, floor
from typing import Any

from rota.domain.durations import format_duration, parse_duration

MAX_ITEMS = 100_000  # of one cart
_SHARE = re.compile(r"(?P<value>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<percent>%?)", re.ASCII)


class Order(StrEnum):
    """Where the order numbers of the items come from."""

    SERIAL = "serial"  # each item has its own
    PARALLEL = "parallel"  # all have the same
    GROUPS = "groups"  # by group sizes
    EXPLICIT = "explicit"  # written at each item


class Scope(StrEnum):
    """Whose failures are counted together."""

    CART = "cart"
    WAVE = "wave"


class OnBreach(StrEnum):
    """What happens when more items failed than may."""

    PAUSE = "pause"
    CANCEL = "cancel"
    CONTINUE = "continue"  # it is only recorded


@dataclass(frozen=True, slots=True)
class Share:
    """So many items, or so many of a hundred."""

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
        """As `parse_share` reads it back: `5`, `2.5%`."""
        return f"{self.value:f}%" if self.is_percent else str(self.value)


@dataclass(frozen=True, slots=True)
class Failures:
    """How many items may fail, and what happens when one more does."""

    allow: Share = Share(0)
    scope: Scope = Scope.CART
    then: OnBreach = OnBreach.PAUSE
    strict: bool = False  # True: so few are in flight that the limit is exceeded by one at most


@dataclass(frozen=True, slots=True)
class Between:
    """What stands between two waves, in the order in which it is passed."""

    wait: timedelta = timedelta(0)  # from the end of the last item before
    check: str = ""  # job whose run has to complete; "": none
    approve: str = ""  # role of whoever has to agree; "": nobody


@dataclass(frozen=True, slots=True)
class CartRules:
    """All that decides which item of a cart may start, and when."""

    order: Order = Order.SERIAL
    group_sizes: tuple[Share, ...] = ()  # of GROUPS: a ramp, whose last value repeats
    max_parallel: int | None = None  # in flight at once; None: as many as fit
    failures: Failures = Failures()
    between: Between = Between()
    calendars: tuple[str, ...] = ()  # names of those in whose windows no wave is opened

    def to_document(self) -> dict[str, Any]:
        """JSON, by the words of the job file; `from_document` reads it back unchanged."""
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
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> CartRules:
        """The inverse of `to_document`."""
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
        )


def parse_share(text: str) -> Share:
    """A count like `5`, or a percentage like `2.5%`; a ValueError says what is wrong."""
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
