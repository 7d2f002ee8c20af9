"""Amounts of bytes as people write them: `100MiB`, `64KB`, `512B`."""

from __future__ import annotations

import re

_UNITS = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
PATTERN = r"[0-9]{1,15}(\.[0-9]{1,6})? ?([kKmMgGtT][iI]?)?[bB]"
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([KMGT]?I?B)", re.ASCII)


def parse_size(text: str) -> int:
    """Whole bytes; a ValueError when the text is not a size."""
    match = _SIZE.fullmatch(text.strip().upper())
    if not match or match[2] not in _UNITS:
        raise ValueError("not a size: write 512KiB, 100MiB or 2GB")
    return int(float(match[1]) * _UNITS[match[2]])


def format_size(size: int) -> str:
    """The largest binary unit that divides the size: `100MiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit.upper()] == 0:
            return f"{size // _UNITS[unit.upper()]}{unit}"
    return f"{size}B"
