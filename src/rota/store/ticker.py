"""A clock that a store can be given, instead of its own."""

from __future__ import annotations

from typing import Protocol


class Ticker(Protocol):
    """Microseconds since 1970, never going back."""

    def now(self) -> int: ...
