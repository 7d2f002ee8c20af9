"""Blobs as files below one folder."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from rota.domain.errors import NotFound, Unavailable
from rota.ports.blobs import segments_of

T = TypeVar("T")
_INCOMING = ".incoming"  # no key: a segment never begins with a dot
_THREADS = 4
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FileBlobs:
    """Implements `rota.ports.blobs.Blobs`. One process at a time owns the folder.

    A blob is written to a temporary file and renamed, so a file with its name is complete. The
    first put of a key wins; a second one changes nothing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = itertools.count()
        self._threads = ThreadPoolExecutor(_THREADS, "rota-blobs")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        await self._in_thread(lambda: self._put(path, data))

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        return await self._in_thread(lambda: _read(path, key))

    async def list(self, prefix: str) -> AsyncIterator[str]:
        path = self._path(prefix)
        for key in await self._in_thread(lambda: list(_keys(path, prefix))):
            yield key

    async def delete(self, prefix: str) -> int:
        path = self._path(prefix)
        return await self._in_thread(lambda: _delete(path, prefix))

    async def close(self) -> None:
        """Wait for writes in progress. Closing twice is harmless."""
        self._threads.shutdown(wait=True)

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*segments_of(key))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        with _translated(self._root):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _put(self, path: Path, data: bytes) -> None:
        if not path.is_file():
            aside = self._root / _INCOMING / f"{next(self._names)}"
            # Synced before it gets its name: after a crash a name must not stand for half a blob.
            try:
                _write_durably(aside, data)
                _make_folder(path.parent)
                aside.rename(path)
            finally:
                aside.unlink(missing_ok=True)
        # Also for a repeated put: the first may have failed just here.
        _sync_folder(path.parent)


async def open_files(root: Path) -> FileBlobs:
    """Open or create the folder, and delete what a crash left half written."""
    with _translated(root):
        _prepare(root)
    return FileBlobs(root)


def _prepare(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    incoming = root / _INCOMING
    if incoming.exists():
        shutil.rmtree(incoming)
    incoming.mkdir()


def _read(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise NotFound(f"there is no blob {key}", facts={"key": key}) from error


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def _make_folder(path: Path) -> None:
    """Create a folder and its parents, durably: they survive a crash too."""
    if path.is_dir():
        return
    _make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _keys(path: Path, key: str) -> Iterator[str]:
    """Yield keys at or below a path, sorted as text."""
    if path.is_file():
        yield key
    if not path.is_dir():
        return
    # `/` sorts after `-` and `.`, so a folder's place is that of its name with the slash.
    below = sorted(path.iterdir(), key=lambda entry: entry.name + "/" * entry.is_dir())
    for entry in below:
        yield from _keys(entry, f"{key}/{entry.name}")


def _delete(path: Path, prefix: str) -> int:
    count = sum(1 for _ in _keys(path, prefix))
    if path.is_dir():
        shutil.rmtree(path)
    elif path.is_file():
        path.unlink()
    return count


@contextmanager
def _translated(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        no_room = error.errno in _NO_ROOM
        raise Unavailable(
            f"the blob folder {root} cannot be used: {error.strerror or error}",
            code="no_space" if no_room else "",
            hint="free some space there" if no_room else "make it readable and writable",
        ) from error
