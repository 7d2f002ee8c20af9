"""A PostgreSQL server as one would run it in production, the same for all contestants."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine import counted_as_own
from testkit.servers.postgres import PostgresServer, find_programs

_VERSIONS = (16, 15)  # the first that is there
_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "shared_buffers": "2GB",
    "max_wal_size": "8GB",
    "max_connections": "300",
}
_numbers = itertools.count(1)


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """On disk, with `fsync`; what it works is not foreign load."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        Path(folder).chmod(0o755)  # the server runs as a user of its own
        with (
            PostgresServer(Path(folder) / "postgres", _version(), _SETTINGS) as server,
            counted_as_own(lambda: server.pid),
        ):
            yield server


@contextmanager
def new_database(server: PostgresServer) -> Iterator[str]:
    """The address of an empty database; whatever the last one left to write is written first."""
    name = f"bench_{next(_numbers)}"
    asyncio.run(_execute(server, f"CREATE DATABASE {name}", "CHECKPOINT"))
    try:
        yield server.address(name)
    finally:
        asyncio.run(server.drop(name))


async def _execute(server: PostgresServer, *statements: str) -> None:
    for statement in statements:
        await server.execute(statement)


def _version() -> int:
    for version in _VERSIONS:
        try:
            find_programs(version)
        except FileNotFoundError:
            continue
        return version
    raise FileNotFoundError(f"no PostgreSQL here: install {' or '.join(map(str, _VERSIONS))}")
