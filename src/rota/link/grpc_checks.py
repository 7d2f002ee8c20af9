"""Checks of values in messages: invalid ones are refused before anything reads them.

Stores cannot hold every text and number that the wire can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from rota.domain.errors import Invalid
from rota.ports.work import LAST_INSTANT, MAX_ITEMS, MAX_NAME, MAX_NUMBER, MAX_TOTAL, UNREADABLE

T = TypeVar("T")

ADMITTED = "rota-admitted"  # metadata that tells a worker at once that its token is good
_MAX_SECONDS = 2.0**40  # also of many processors


def bad(what: str) -> Invalid:
    """Return the error that ends the stream of a peer that sends invalid values."""
    return Invalid(what, code="bad_message")


def name(value: str, what: str) -> str:
    """Check a name or id: short, and all of it printable."""
    if not value or len(value) > MAX_NAME or not value.isprintable():
        raise bad(f"{what}: 1 to {MAX_NAME} printable characters are allowed")
    return value


def names(values: Sequence[str], what: str) -> None:
    """Check a column of names."""
    if values and (
        not all(values) or max(map(len, values)) > MAX_NAME or not "".join(values).isprintable()
    ):
        raise bad(f"{what}: 1 to {MAX_NAME} printable characters are allowed")


def column(values: list[int], beside: Sequence[str], what: str, most: int = MAX_TOTAL) -> list[int]:
    """Check a column of numbers: one for each run."""
    if len(values) != len(beside):
        raise bad(f"{what}: {len(values):,} values for {len(beside):,} runs")
    if values and max(values) > most:
        raise bad(f"{what}: {max(values):,} is more than {most:,}")
    return values


def instants(values: list[int], beside: Sequence[str], what: str) -> list[int]:
    """Check a column of times."""
    column(values, beside, what, LAST_INSTANT)
    if values and min(values) < 0:
        raise bad(f"{what}: {min(values)} is not a time")
    return values


def positions(values: dict[int, T], beside: Sequence[str], what: str) -> dict[int, T]:
    """Check a column that few runs have a value in."""
    if values and max(values) >= len(beside):
        raise bad(f"{what}: there is no run at position {max(values):,}")
    return values


def label(value: str) -> str:
    """Check the value of a label: as short as a name, but it may be empty."""
    return name(value, "label") if value else ""


def instant(value: int, what: str) -> int:
    if not 0 <= value <= LAST_INSTANT:
        raise bad(f"{what}: {value} is not a time")
    return value


def count(value: int, what: str, most: int = MAX_TOTAL) -> int:
    if value > most:
        raise bad(f"{what}: {value:,} is more than {most:,}")
    return value


def number(value: int, what: str) -> int:
    """Check the number of an attempt or a chunk."""
    return count(value, what, MAX_NUMBER)


def seconds(value: float, what: str) -> float:
    if not 0 <= value <= _MAX_SECONDS:
        raise bad(f"{what}: {value} is not how long anything takes")
    return value


def measure(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise bad(f"{what}: {value} is not a number")
    return value


def items(values: Sequence[T], what: str, most: int = MAX_ITEMS) -> Sequence[T]:
    """Check the count of a repeated field: too many would block everybody else."""
    if len(values) > most:
        raise bad(f"{what}: {len(values):,} are more than {most:,}")
    return values


def data(value: bytes, limit: int, what: str) -> bytes:
    if len(value) > limit:
        raise bad(f"{what}: {len(value):,} bytes are more than {limit:,}")
    return value


def json(value: str, limit: int, what: str) -> Any:
    try:
        return msgspec.json.decode(data(value.encode(), limit, what))
    except UNREADABLE as error:
        raise bad(f"{what}: {error}") from error
