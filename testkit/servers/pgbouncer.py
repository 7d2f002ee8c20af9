"""A real pgbouncer that hands out connections by transaction, in front of PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testkit.servers.ports import free_ports
from testkit.servers.postgres import PostgresServer
from testkit.waiting import eventually

_UNPRIVILEGED = "nobody"  # it refuses to run as root
# Every transaction gets the connection that was idle for longest: hardly ever that of the one
# before, so whatever is left behind in a connection is missed at once.
_SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "any",
    "pool_mode": "transaction",
    "max_client_conn": "500",
    "server_round_robin": "1",
}


class PgBouncer:
    """Pooler that keeps its port when it is killed and started again. Clients share `connections`.

    `settings` are those of its configuration file, beside the ones for tests.
    """

    def __init__(
        self,
        folder: Path,
        postgres: PostgresServer,
        connections: int = 4,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._postgres = postgres
        [self.port] = free_ports(1)
        size = {"default_pool_size": str(connections), "min_pool_size": str(connections)}
        self._settings = _SETTINGS | size | {"listen_port": str(self.port)} | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self._configuration())
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def address(self, database: str = "postgres") -> str:
        """Return the address for ROTA_STORE."""
        return self._postgres.address(database, self.port)

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        user = _UNPRIVILEGED if os.geteuid() == 0 else None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program(), str(self._file)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
            )
        try:
            eventually(self._is_ready, otherwise="pgbouncer did not get ready")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it; all connections break, on both sides."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def _file(self) -> Path:
        return self._folder / "pgbouncer.ini"

    def _configuration(self) -> str:
        place = f"* = host=127.0.0.1 port={self._postgres.port} user=rota"
        settings = (f"{name} = {value}" for name, value in self._settings.items())
        return "\n".join(["[databases]", place, "[pgbouncer]", *settings, ""])

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


def find_pgbouncer() -> str | None:
    """Find pgbouncer; Debian has it in a folder that users may not have in their path."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def _program() -> str:
    found = find_pgbouncer()
    assert found, "no pgbouncer: install the Debian package pgbouncer"
    return found
