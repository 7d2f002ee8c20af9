"""A `rota up` of its own, from its start to the proof that nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.contest import wait_for
from bench.stamps import VARIABLE
from rota.sdk.client import Client

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = "bench.functions:app"

_ROTA = Path(sys.executable).with_name("rota")
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_SETTLING_SECONDS = 0.2
_LOG_TAIL = 2_000  # characters


@dataclass(frozen=True, slots=True)
class Home:
    """Where one measurement keeps its files."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> Path:
        return self.data / "rota.db"

    @property
    def stamps(self) -> Path:
        return self.folder / "stamps"

    @property
    def log(self) -> Path:
        return self.folder / "rota.log"


@dataclass(frozen=True, slots=True)
class Server:
    pid: int
    client: Client


@contextmanager
def temporary_home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        yield Home(Path(folder))


@contextmanager
def rota_up(home: Home, *, slots: int, app: str = "") -> Iterator[Server]:
    """A server with one worker that is ready to take work; without an app, shell work only."""
    with home.log.open("wb") as log:
        process = subprocess.Popen(
            _command(slots, app),
            cwd=ROOT,
            env=_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        with _ready_client(process, home) as client:
            yield Server(process.pid, client)
    except Exception as error:
        tail = home.log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        error.add_note(f"rota up had printed:\n{tail}")
        raise
    finally:
        _stop(process)


def wait_until_done(client: Client, seconds: float) -> None:
    """Until no run of the server is under way."""
    wait_for(lambda: _is_done(client), seconds, "the last run to end")


def _is_done(client: Client) -> bool:
    time.sleep(_SETTLING_SECONDS)  # each look costs the server some of the time being measured
    return not client.list_runs(active=True, limit=1).items


def _command(slots: int, app: str) -> list[str]:
    command = [str(_ROTA), "up", f"--slots={slots}", "--log-level=warning"]
    return [*command, f"--app={app}"] if app else command


def _environment(home: Home) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    settings = {"ROTA_HOME": str(home.data), "ROTA_LISTEN": "127.0.0.1:0"}
    return kept | settings | {VARIABLE: str(home.stamps)}


def _ready_client(process: subprocess.Popen[bytes], home: Home) -> Client:
    note = home.data / "client.json"
    wait_for(lambda: note.exists() or _has_ended(process), _START_SECONDS, "the server")
    if _has_ended(process):
        raise RuntimeError("rota up did not start")
    written = json.loads(note.read_text(encoding="utf-8"))
    client = Client(written["url"], written["token"])
    wait_for(lambda: bool(client.list_workers().items), _START_SECONDS, "the worker")
    return client


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _stop(process: subprocess.Popen[bytes]) -> None:
    members = processes.tree(process.pid)
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    left = [member for member in members if member.is_alive()]
    for member in left:
        member.kill()
    if left:
        raise RuntimeError(f"rota up left processes behind: {[member.pid for member in left]}")
