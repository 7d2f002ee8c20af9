"""Quotes what a user wrote, so that no message grows or misbehaves with its input."""

from __future__ import annotations

_LONGEST = 60


def quoted(text: str) -> str:
    """The text in double quotes, cut when long, with unprintable characters escaped."""
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown) + '"'
