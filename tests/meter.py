"""What PostgreSQL works, in numbers that a busy machine does not blur."""

from __future__ import annotations

from testkit.servers.postgres import PostgresServer


class Meter:
    """Counts what PostgreSQL looks at in one database."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._server = server
        self._of = f"WHERE datname = '{database}'"

    async def pages(self) -> int:
        """Looked at so far. A connection tells it as it ends: all but those in a transaction do."""
        connected = (
            f"SELECT FROM pg_stat_activity {self._of} AND backend_type = 'client backend'"
            " AND state IS DISTINCT FROM 'idle in transaction'"
        )
        while await self._server.execute(connected):
            pass
        [row] = await self._server.execute(
            f"SELECT blks_hit + blks_read AS pages FROM pg_stat_database {self._of}"
        )
        return int(row["pages"])
