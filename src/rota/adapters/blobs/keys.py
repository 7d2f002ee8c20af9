"""Which names a blob may have."""

from __future__ import annotations

import re

from rota.domain.errors import Invalid

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # never hidden, never `..`
_MAX_KEY = 1000


def segments_of(key: str) -> list[str]:
    """The parts of a key. `Invalid` unless each is harmless in any file system and any URL."""
    segments = key.split("/")
    if len(key) > _MAX_KEY or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise Invalid(
            f"{key[:80]!r} is no key of a blob",
            code="invalid_key",
            hint="use segments of letters, digits, `.`, `_` and `-`, separated by `/`",
        )
    return segments
