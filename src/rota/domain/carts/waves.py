"""Waves: which items go together, by their order numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import assert_never

from rota.domain.carts.definition import Order, Share

_MOST_PARTS = 8  # of a text for people


def wave_of_each(order: Order, total: int, group_sizes: Sequence[Share] = ()) -> Iterator[int]:
    """The order number of each item in turn, from 1. EXPLICIT ones stand at the items."""
    sizes = wave_sizes(order, total, group_sizes)
    return chain.from_iterable(repeat(number, size) for number, size in enumerate(sizes, 1))


def wave_sizes(order: Order, total: int, group_sizes: Sequence[Share] = ()) -> Iterator[int]:
    """How many items each wave has. `group_sizes` of GROUPS are never empty."""
    match order:
        case Order.SERIAL:
            return repeat(1, total)
        case Order.PARALLEL:
            return repeat(total, min(total, 1))
        case Order.GROUPS:
            return _ramp(total, group_sizes)
        case Order.EXPLICIT:
            raise ValueError("explicit order numbers are written at the items")
        case _:
            assert_never(order)


def _ramp(total: int, group_sizes: Sequence[Share]) -> Iterator[int]:
    sizes = [max(1, size.rounded_up(total)) for size in group_sizes]
    left = total
    for size in chain(sizes, repeat(sizes[-1])):
        if not left:
            return
        yield min(size, left)
        left -= min(size, left)


def waves_in_words(sizes: Iterable[int]) -> str:
    """The sizes of all waves: `1, 5, 20, 100 × 9, 74`; of many, the first ones and the last."""
    runs = [(size, sum(1 for _ in equal)) for size, equal in groupby(sizes)]
    parts = [f"{size} × {count}" if count > 1 else str(size) for size, count in runs]
    if len(parts) <= _MOST_PARTS:
        return ", ".join(parts)
    waves = sum(count for _, count in runs)
    return f"{', '.join(parts[: _MOST_PARTS - 2])}, …, {parts[-1]} ({waves} waves)"
