"""Values that every part of Rota can carry: JSON without its odd corners.

A job may hand in anything. What one part can parse and the next cannot would otherwise break
whoever is last in line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

MAX_DEPTH = 32
_LARGEST = 2**63 - 1
_SMALLEST = -(2**63)


def why_not_portable(value: object) -> str:
    """What is wrong with a JSON value; "" if nothing is."""
    layer: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for item in layer:
            if complaint := _scalar_complaint(item):
                return complaint
            if isinstance(item, Mapping):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        if not below:
            return ""
        layer = below
    return f"it is nested deeper than {MAX_DEPTH} levels"


def _scalar_complaint(value: object) -> str:
    if isinstance(value, int) and not _SMALLEST <= value <= _LARGEST:
        return "a whole number in it does not fit 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number in it is not finite"
    if isinstance(value, str) and not _is_text(value):
        return "a text in it has half a character (a lone surrogate)"
    return ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
