"""Differences between two documents, for people to read before they make a change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Change(StrEnum):
    """Effect of saving a job or a calendar."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


def differences(old: Mapping[str, Any], new: Mapping[str, Any], at: str = "") -> list[str]:
    """List where two documents differ, one line a place."""
    lines: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        lines += difference(old.get(key), new.get(key), f"{at}.{key}" if at else key)
    return lines


def difference(old: Any, new: Any, at: str) -> list[str]:
    """List where two values of one place differ."""
    if old == new:
        return []
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return differences(old, new, at)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for i, (a, b) in pairs for line in difference(a, b, f"{at}[{i}]")]
    return [f"{at}  {_short(old)} → {_short(new)}"]


def _short(value: Any) -> str:
    text = "(none)" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def digest_of(document: Mapping[str, Any]) -> str:
    """Return a short digest of a document, equal for equal content."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
