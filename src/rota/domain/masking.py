"""Hiding what is secret in what others print, say or answer: wherever it stands as it is.

An encoded form is not recognised, nor one that somebody cut into pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_SHORTEST = 8  # characters of a value that is hidden: shorter ones hide too much
_MASK = b"***"


class Masker:
    """Hides values in texts, in bytes, and in what JSON has."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {value.encode() for value in values if len(value) >= _SHORTEST}
        self._values = sorted(known, key=len, reverse=True)

    def and_also(self, values: Iterable[str]) -> Masker:
        """Return one that hides these values, too."""
        return Masker([*(value.decode() for value in self._values), *values])

    def __call__(self, data: bytes) -> bytes:
        for value in self._values:
            data = data.replace(value, _MASK)
        return data

    def part(self, data: bytes) -> tuple[bytes, bytes]:
        """Hide them in a part of a stream; return what can be passed on, and what cannot yet.

        The latter may be the beginning of a value, and belongs before the next part.
        """
        data = self(data)
        longest = max(map(len, self._values), default=1)
        for length in range(min(longest - 1, len(data)), 0, -1):
            if any(value.startswith(data[-length:]) for value in self._values):
                return data[:-length], data[-length:]
        return data, b""

    def text(self, text: str) -> str:
        return self(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def value(self, value: Any) -> Any:
        """Hide them in the texts of a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.value(each) for name, each in value.items()}
        return [self.value(each) for each in value] if isinstance(value, list) else value
