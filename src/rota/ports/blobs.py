"""Bytes too big for the store: output, code, artifacts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class Blobs(Protocol):
    """Immutable once written: a key is put once, and a put is whole or not at all.

    `put` returns after the bytes survive a crash of this process and of the machine. Keys are
    `/`-separated segments of letters, digits, `.`, `_` and `-`. Failures of the world are
    `Unavailable`; a missing key is `NotFound`.
    """

    async def put(self, key: str, data: bytes) -> None: ...

    async def get(self, key: str) -> bytes: ...

    def list(self, prefix: str) -> AsyncIterator[str]:
        """Keys below a prefix, in order."""
        ...

    async def delete(self, prefix: str) -> int:
        """Remove every key below a prefix; missing ones are no error. Returns how many."""
        ...

    async def close(self) -> None: ...
