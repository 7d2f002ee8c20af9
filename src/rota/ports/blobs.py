"""Bytes too big for the store: output, code, artifacts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Protocol

from rota.domain.errors import Invalid


class Blobs(Protocol):
    """Store of immutable bytes: a key is put once, and a put is whole or not at all.

    `put` returns after the bytes survive a crash of this process and of the machine. Keys are
    `/`-separated segments of letters, digits, `.`, `_` and `-`. Failures of the world are
    `Unavailable`; a missing key is `NotFound`.
    """

    async def put(self, key: str, data: bytes) -> None: ...

    async def get(self, key: str) -> bytes: ...

    def list(self, prefix: str) -> AsyncIterator[str]:
        """Yield keys below a prefix, in order."""
        ...

    async def delete(self, prefix: str) -> int:
        """Remove every key below a prefix; missing ones are no error. Returns how many."""
        ...

    async def close(self) -> None: ...


_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # never hidden, never `..`
_MAX_KEY = 1000


def segments_of(key: str) -> list[str]:
    """Split a key. `Invalid` unless each part is harmless in any file system and any URL."""
    segments = key.split("/")
    if len(key) > _MAX_KEY or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise Invalid(
            f"{key[:80]!r} is no key of a blob",
            code="invalid_key",
            hint="use segments of letters, digits, `.`, `_` and `-`, separated by `/`",
        )
    return segments
