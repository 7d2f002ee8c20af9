"""Where a pooler in front of a test's PostgreSQL comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from testkit.servers.pgbouncer import PgBouncer, find_pgbouncer
from testkit.servers.postgres import PostgresServer, server_folder


@contextmanager
def pooler_before(
    postgres: PostgresServer, connections: int = 4, settings: Mapping[str, str] | None = None
) -> Iterator[PgBouncer]:
    """Without pgbouncer the test is skipped, but not in CI."""
    if find_pgbouncer() is None and "CI" not in os.environ:
        pytest.skip("needs the Debian package pgbouncer")
    with server_folder() as folder:
        place = folder / "pooler"
        with PgBouncer(place, postgres, connections, settings) as pooler:
            yield pooler
