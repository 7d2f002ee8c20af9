"""What a server holds in memory of files, so that many of them cost no more than a few."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from rota.domain.errors import Unavailable
from rota.ports.blobs import Blobs

_CACHED = 8  # pieces in the memory of a server
_AT_ONCE = 16  # files that come to a server at the same time, each with a piece in memory
_OF_ONE_PROJECT = 12


class OpenFiles:
    """Pieces of files that are read, and places for files that come."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[str, bytes] = OrderedDict()
        self._reading: dict[str, asyncio.Lock] = {}
        self._incoming: Counter[str] = Counter()  # by project

    @contextmanager
    def place(self, project: str) -> Iterator[None]:
        """Take a place for a file that comes; `Unavailable` while all are taken.

        Whoever sends slowly keeps a place for long: no project has those of all others.
        """
        of_project = self._incoming[project]
        if self._incoming.total() >= _AT_ONCE or of_project >= _OF_ONE_PROJECT:
            most = _OF_ONE_PROJECT if of_project >= _OF_ONE_PROJECT else _AT_ONCE
            whose = " of a project" if most == _OF_ONE_PROJECT else ""
            raise Unavailable(
                f"this server takes in {most} files{whose} at a time, and as many are coming",
                code="too_many_uploads",
                hint="try again in a moment",
            )
        self._incoming[project] += 1
        try:
            yield
        finally:
            self._incoming[project] -= 1
            self._incoming += Counter()  # forgets projects that have none

    async def piece(self, blobs: Blobs, key: str) -> bytes:
        """Return a piece; whoever reads a file in small parts fetches each of its pieces once."""
        lock = self._reading.setdefault(key, asyncio.Lock())
        async with lock:
            if (found := self._pieces.get(key)) is None:
                found = self._pieces[key] = await blobs.get(key)
        if not lock.locked():
            self._reading.pop(key, None)
        if key in self._pieces:
            self._pieces.move_to_end(key)
        while len(self._pieces) > _CACHED:
            self._pieces.popitem(last=False)
        return found
