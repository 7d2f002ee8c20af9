"""Files of attempts: fetched from the server and kept there, part by part.

A stream that is cut is nobody's fault: what was answered stays answered, and the rest goes by the
next one. Only one part of a file is under way, and only a few files: output and reports share the
stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from rota.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rota.domain.files import PARCEL
from rota.ports.clock import Clock
from rota.ports.files import BLOB_READ, BLOB_WRITE, BlobPiece, BlobRead, BlobWritten
from rota.ports.work import (
    Fence,
    Refused,
    WorkerLink,
)

T = TypeVar("T")

_AT_ONCE = 4  # files that are kept
_AGAIN = timedelta(milliseconds=500)
_PATIENCE = timedelta(minutes=5)  # without any progress
_STALE = "stale_attempt"
# Codes of refusals that stay, however often it is tried.
_FINAL = frozenset({"file_quota", "file_refused", "wrong_digest", "too_large", "invalid_digest"})


class LinkedFiles:
    """Implements `rota.ports.executor.Files` over the worker's connection.

    `link` returns the connection and what its server answers; `Unavailable` while there is none.
    """

    def __init__(
        self,
        link: Callable[[], tuple[WorkerLink, tuple[str, ...]]],
        clock: Clock,
        patience: timedelta = _PATIENCE,
    ) -> None:
        self._link = link
        self._clock = clock
        self._patience = patience.total_seconds()
        self._keeping = asyncio.Semaphore(_AT_ONCE)

    async def fetch(self, fence: Fence, digest: str, into: int, most: int) -> int:
        found = hashlib.sha256()
        offset = 0
        size: int | None = None
        while size is None or offset < size:
            wish = BlobRead(fence.run, fence.number, digest, offset, PARCEL)
            piece = await self._read(wish)
            size = piece.size
            if size > most:
                return size
            if piece.offset != offset or (not piece.data and offset < size):
                raise Unavailable("the server sent another part of the file than was asked for")
            found.update(piece.data)
            await asyncio.to_thread(_write_all, into, piece.data, offset)
            offset += len(piece.data)
        if f"sha256:{found.hexdigest()}" != digest:
            raise Unavailable(f"what the server keeps as {digest} is something else")
        return size

    async def keep(
        self, fence: Fence, step: int, path: str, source: int, size: int | None = None
    ) -> str:
        size = os.fstat(source).st_size if size is None else size
        digest = await asyncio.to_thread(_digest_of, source, size)
        async with self._keeping:
            offset = 0
            while True:
                data = await asyncio.to_thread(
                    _read_all, source, min(PARCEL, size - offset), offset
                )
                piece = BlobPiece(fence.run, fence.number, digest, offset, data, size, path, step)
                written = await self._write(piece)
                if written.received == size:
                    return digest
                offset = _next_offset(written, size)

    async def _read(self, wish: BlobRead) -> BlobPiece:
        return await self._ask(BLOB_READ, lambda link: link.read_blob(wish))

    async def _write(self, piece: BlobPiece) -> BlobWritten:
        return await self._ask(BLOB_WRITE, lambda link: link.write_blob(piece))

    async def _ask(self, request: str, ask: Callable[[WorkerLink], Awaitable[T]]) -> T:
        """Ask until there is an answer, over whichever connection there is."""
        tries_until = self._clock.monotonic() + self._patience
        while True:
            try:
                link, requests = self._link()
                if request in requests:
                    return await ask(link)
                problem: Exception = Unavailable("the server is of a release without files")
            except Refused as error:
                _raise_final(error)
                problem = error
            except NotFound as error:
                if error.code == "file_not_found":
                    raise
                problem = error  # the session is over, which others see to
            except Unavailable as error:
                problem = error
            if self._clock.monotonic() >= tries_until:
                raise Unavailable(f"no server took or gave the file: {problem}") from problem
            await self._clock.sleep(_AGAIN)


def _raise_final(error: Refused) -> None:
    if error.code == _STALE:
        raise Conflict(error.message, code=_STALE) from error
    if error.code in _FINAL:
        raise Invalid(error.message, code=error.code) from error


def _next_offset(written: BlobWritten, size: int) -> int:
    if not 0 <= written.received < size:
        raise Unavailable("the server tells of more than there is of the file")
    return written.received


def _digest_of(source: int, size: int) -> str:
    found = hashlib.sha256()
    for offset in range(0, size, PARCEL):
        found.update(_read_all(source, min(PARCEL, size - offset), offset))
    return f"sha256:{found.hexdigest()}"


def _read_all(source: int, length: int, offset: int) -> bytes:
    """Read so many bytes from a place on; `Invalid` if there are fewer by now."""
    data = bytearray()
    while len(data) < length:
        part = os.pread(source, length - len(data), offset + len(data))
        if not part:
            raise Invalid("it became shorter while it was read", code="wrong_digest")
        data += part
    return bytes(data)


def _write_all(into: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(into, view, offset)
        view, offset = view[written:], offset + written
