"""A real `rota up` for tests: started, stopped, killed, and observed from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rota.sdk.client import Client
from testkit.waiting import PATIENCE, eventually

ROTA = Path(sysconfig.get_path("scripts"), "rota")
_WORKER = b"rota.runtime.worker_process"
_GUARDIAN = b"rota.guardian"


class RotaUp:
    """`rota up` on a data folder of its own, in a session of its own.

    Settings are those of the environment (`ROTA_LEASE`), without the prefix and in lower case.
    `environ` are other variables of it, which Rota does not know.
    """

    def __init__(
        self,
        home: Path,
        apply: Sequence[Path] = (),
        environ: Mapping[str, str] | None = None,
        **settings: str,
    ) -> None:
        self.home = home
        self.log = home.with_name(f"{home.name}.log")  # what it printed, over all its starts
        self._command = [str(ROTA), "up", *(f"--apply={file}" for file in apply)]
        self._environ = environment(home, **settings) | dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._client: Client | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def client(self) -> Client:
        """Return a client of the server of the latest start."""
        assert self._client is not None, "not started"
        return self._client

    def launch(self) -> None:
        """Start it without waiting for anything."""
        self._process = self._open(self._command)

    def start_worker(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        """Start `rota worker` beside it and wait until that is registered."""
        worker = self._open([str(ROTA), "worker", "--name", name, *options])
        self._workers.append(worker)
        eventually(lambda: name in {each.worker for each in self.client.list_workers()})
        return worker

    def _open(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                env=self._environ,
                cwd=self.home.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> RotaUp:
        """Start it and wait until it serves and a worker is there."""
        self.launch()
        address = eventually(self._address, otherwise="the server did not get ready")
        assert address is not None
        self._client = Client(*address)
        eventually(self._has_worker, otherwise="no worker registered")
        return self

    def _address(self) -> tuple[str, str] | None:
        if self.process.poll() is not None:
            raise ChildProcessError(f"rota up ended:\n{self.printed()}")
        with suppress(OSError, ValueError):
            note = json.loads((self.home / "client.json").read_text())
            if note["pid"] == self.process.pid:
                return note["url"], note["token"]
        return None

    def _has_worker(self) -> bool:
        assert self.client.list_workers().items, self.printed()
        return True

    def stop(self, request: signal.Signals = signal.SIGTERM, within: timedelta = PATIENCE) -> int:
        """Stop it; return its exit code. No process that it ever started may be left then."""
        self.process.send_signal(request)
        code = self.wait(within)
        assert not processes_of(self.home), "processes outlived the server"
        return code

    def kill(self) -> None:
        """Kill the server; wait until none of its processes is left."""
        self.process.kill()
        self.wait()
        eventually(
            lambda: not processes_of(self.home), otherwise="processes outlived the killed server"
        )

    def wait(self, within: timedelta = PATIENCE) -> int:
        """Wait until it has ended; return its exit code."""
        code = self.process.wait(within.total_seconds())
        self._disconnect()
        return code

    def close(self) -> None:
        """Kill all its processes, whatever state it is in."""
        self._disconnect()
        for pid in processes_of(self.home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in (self._process, *self._workers):
            if process is not None:
                process.wait()
        eventually(lambda: not processes_of(self.home), otherwise="processes were left behind")

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def guardian_pids(self) -> tuple[int, int]:
        """Return the pids of the outer guardian process and the inner one."""
        outer = next(pid for pid in children_of(self.process.pid) if _GUARDIAN in cmdline(pid))
        return outer, inner_of(outer)

    def keeper_pid(self) -> int:
        """Return the pid of the process that ends what guardians no longer can."""
        outer, inner = self.guardian_pids()
        return next(pid for pid in children_of(outer) if pid != inner)

    def worker_pid(self) -> int:
        _, inner = self.guardian_pids()
        return next(pid for pid in children_of(inner) if _WORKER in cmdline(pid))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `rota` with this server's data folder."""
        return run_rota(*words, environ=self._environ)

    def printed(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def environment(home: Path, **settings: str) -> dict[str, str]:
    """Return a clean environment for Rota processes, without this user's configuration."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home.parent),
        "LANG": "C.UTF-8",
        "ROTA_TZ": "UTC",  # commands print on the reader's clocks
        "ROTA_HOME": str(home),
        "ROTA_LISTEN": "127.0.0.1:0",
        "ROTA_LOG_LEVEL": "warning",
        **{f"ROTA_{name.upper()}": value for name, value in settings.items()},
    }


def run_rota(
    *words: str, environ: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it must not take long."""
    return subprocess.run(
        [str(ROTA), *words],
        env=dict(environ),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE.total_seconds(),
        check=False,
    )


def processes_of(trace: Path | str) -> list[int]:
    """List living processes with this text in their environment, arguments or current folder.

    The processes of a data folder have its path there: Rota tells jobs where to leave results, and
    starts them in a folder of theirs. One that hides from that can be given a mark of its own.
    """
    wanted = os.fsencode(trace)
    return [pid for pid in _other_pids() if any(wanted in fact for fact in _facts_of(pid))]


def cmdline(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def children_of(pid: int) -> list[int]:
    """List child processes in the order in which they were started."""
    with suppress(OSError):
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in listed.split()]
    return []


def inner_of(outer: int) -> int:
    """Return the inner process of a guardian, beside which is its keeper."""
    return next(pid for pid in children_of(outer) if name_of(pid) == "rota-inner")


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _other_pids() -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if pid != os.getpid()]


def _facts_of(pid: int) -> Iterator[bytes]:
    yield cmdline(pid)
    with suppress(OSError):
        yield Path(f"/proc/{pid}/environ").read_bytes()
        yield os.fsencode(Path(f"/proc/{pid}/cwd").readlink())
