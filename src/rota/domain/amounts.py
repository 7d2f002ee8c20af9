"""Amounts of resources as people write them: `2`, `0.5`, `4GiB`."""

from __future__ import annotations

import re

from rota.domain.resources import UNIT
from rota.domain.sizes import PATTERN as SIZE
from rota.domain.sizes import format_size, parse_size

MOST_UNITS = 10**15  # of anything: in thousandths it still fits 64 bits

_NUMBER = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,3})0*)?", re.ASCII)
_IN_BYTES = "memory"


def parse_amount(written: float | str) -> int:
    """Whole thousandths, of a number, its text or a size; a ValueError when it is no amount."""
    text = written.strip() if isinstance(written, str) else str(written)
    amount = parse_size(text) * UNIT if re.fullmatch(SIZE, text) else _thousandths(text)
    if amount > MOST_UNITS * UNIT:
        raise ValueError(f"more than {MOST_UNITS:,}")
    return amount


def format_amount(name: str, amount: int) -> str:
    """So many thousandths of a resource as people write them: memory as a size."""
    if name == _IN_BYTES and amount % UNIT == 0:
        return format_size(amount // UNIT)
    whole, rest = divmod(amount, UNIT)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def _thousandths(text: str) -> int:
    match = _NUMBER.fullmatch(text)
    if not match:
        raise ValueError("not an amount: write 2, 0.5 or 4GiB")
    return int(match[1]) * UNIT + int((match[2] or "").ljust(3, "0"))
