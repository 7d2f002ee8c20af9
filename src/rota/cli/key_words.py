"""Keys that runs share, as people call them."""

from __future__ import annotations

import json

_KINDS = {"rate": "rate limit"}


def key_words(key: str) -> str:
    """`rate limit s3-put`, `another run with host=db-1 (exclusive_by)`."""
    kind, _, rest = key.partition(":")
    name = rest.partition("/")[2]
    if kind == "exclusive":
        return f"another run with {_values(name)} (exclusive_by)"
    return f"{_KINDS.get(kind, kind)} {name}"


def _values(name: str) -> str:
    """The inputs and their values; the names alone where the values are too long to be kept."""
    if not name.startswith("{"):
        return f"the same {name.partition('#')[0]}"
    return ", ".join(f"{input_}={value}" for input_, value in json.loads(name).items())
