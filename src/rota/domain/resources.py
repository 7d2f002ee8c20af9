"""Amounts of what workers offer and runs take: cpu, memory, gpu, slots, and any other name.

Amounts are whole thousandths of a unit, so that what is taken and given back adds up exactly.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from math import fsum
from typing import TypeAlias, TypeVar

from rota.domain.quantities import PATTERN as SIZE
from rota.domain.quantities import format_size, parse_size

Vector: TypeAlias = Mapping[str, int]  # thousandths by name; a name that is missing counts 0
K = TypeVar("K", bound=Hashable)

UNIT = 1000
SLOTS = "slots"  # every run takes one,
HTTP_SLOTS = "http_slots"  # or one of these, if another system does its work
USUAL_NAMES = frozenset({"cpu", "memory", "gpu"})  # any worker may offer these
NAMES_OF_WORKERS = USUAL_NAMES | {SLOTS, HTTP_SLOTS}  # nothing that all runs share may be called so
ONE_SLOT: Vector = {SLOTS: UNIT}
ONE_HTTP_SLOT: Vector = {HTTP_SLOTS: UNIT}


def capacity_of(slots: int, resources: Vector) -> dict[str, int]:
    """Return all that a worker has: its slots, and the resources that it offers."""
    return {**resources, SLOTS: slots * UNIT}


def fits(demand: Vector, room: Vector) -> bool:
    """Return whether all of a demand can be had at once."""
    for name, amount in demand.items():  # noqa: SIM110  a loop is faster, and asked very often
        if room.get(name, 0) < amount:
            return False
    return True


def lacking(demand: Vector, room: Vector) -> list[str]:
    """List the names of which there is too little."""
    return [name for name, amount in demand.items() if room.get(name, 0) < amount]


def plus(one: Vector, other: Vector) -> dict[str, int]:
    total = dict(one)
    for name, amount in other.items():
        total[name] = total.get(name, 0) + amount
    return total


def minus(room: Vector, demand: Vector) -> dict[str, int]:
    """Subtract a demand; below 0 where more was taken than there is."""
    left = dict(room)
    for name, amount in demand.items():
        left[name] = left.get(name, 0) - amount
    return left


def total(vectors: Iterable[Vector]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            amounts[name] = amounts.get(name, 0) + amount
    return amounts


def dominant_share(demand: Vector, capacity: Vector) -> float:
    """Return the largest fraction of a capacity that a demand takes, over all names; at most 1."""
    shares = [
        amount / capacity[name] for name, amount in demand.items() if capacity.get(name, 0) > 0
    ]
    return min(max(shares, default=1.0), 1.0)


def best_fit(demand: Vector, rooms: Mapping[K, Vector]) -> K | None:
    """Return where least is left over of what the demand names; None: it fits nowhere.

    Small runs fill the gaps, and large rooms stay whole for large runs. The first of equals wins.
    """
    fitting = (place for place, room in rooms.items() if fits(demand, room))
    return min(fitting, key=lambda place: _left_over(demand, rooms[place]), default=None)


def tighter_fit(demand: Vector, here: Vector, others: Mapping[K, Vector]) -> K | None:
    """Return where else a demand fits and leaves less than here; None: nowhere."""
    best = best_fit(demand, others)
    if best is None or not fits(demand, here):
        return best
    return best if _left_over(demand, others[best]) < _left_over(demand, here) else None


def _left_over(demand: Vector, room: Vector) -> float:
    """Sum the fractions of a room that a demand would leave; independent of their order."""
    return fsum(
        (amount - demand.get(name, 0)) / amount for name, amount in room.items() if amount > 0
    )


MOST_UNITS = 10**15  # of anything: in thousandths it still fits 64 bits

_NUMBER = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,3})0*)?", re.ASCII)
_IN_BYTES = "memory"


def parse_amount(written: float | str) -> int:
    """Parse thousandths of a number, its text or a size; a ValueError when it is no amount."""
    text = written.strip() if isinstance(written, str) else str(written)
    amount = parse_size(text) * UNIT if re.fullmatch(SIZE, text) else _thousandths(text)
    if amount > MOST_UNITS * UNIT:
        raise ValueError(f"more than {MOST_UNITS:,}")
    return amount


def parse_named_amount(name: str, text: str) -> int:
    """Parse thousandths of a resource of workers; a ValueError that names it otherwise."""
    if name in (SLOTS, HTTP_SLOTS):
        raise ValueError(f"{name} are not among the resources: the setting {name} says how many")
    if name == _IN_BYTES and text.isdecimal():
        raise ValueError(f"{name}={text} has no unit: write a size such as {text}GiB")
    try:
        return parse_amount(text)
    except ValueError as error:
        raise ValueError(f"{name}={text} is {error}") from error


def format_amount(name: str, amount: int) -> str:
    """Format thousandths of a resource as people write them: memory as a size."""
    if name == _IN_BYTES and amount % UNIT == 0:
        return format_size(amount // UNIT)
    whole, rest = divmod(amount, UNIT)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def _thousandths(text: str) -> int:
    match = _NUMBER.fullmatch(text)
    if not match:
        raise ValueError("not an amount: write 2, 0.5 or 4GiB")
    return int(match[1]) * UNIT + int((match[2] or "").ljust(3, "0"))
