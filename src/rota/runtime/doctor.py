"""`rota doctor`: looks at everything Rota depends on and says what to mend."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from rota.adapters.store.sqlite.connection import OLDEST_SQLITE
from rota.guardian import guardian_command
from rota.runtime.backend_checks import (
    look_at_blobs,
    look_at_queue,
    look_at_rpc,
    look_at_store,
)
from rota.runtime.findings import Finding, Verdict
from rota.runtime.paths import client_file, worker_socket
from rota.runtime.server_checks import look_at_api
from rota.runtime.settings import Settings

_LITTLE_SPACE = 256 * 1024 * 1024
_GUARDIAN_SECONDS = 10
_SERVER_SECONDS = 2


def run(settings: Settings) -> list[Finding]:
    """All findings; nothing is changed."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _python,
        _folder,
        look_at_store,
        look_at_queue,
        look_at_blobs,
        look_at_rpc,
        _zones,
        _server,
        _guardian,
    )
    return [finding for check in checks for finding in check(settings)]


def _python(settings: Settings) -> Iterator[Finding]:
    shown = f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield Finding("python", Verdict.PROBLEM, shown, "SQLite 3.38 or later is needed")
    else:
        yield Finding("python", Verdict.OK, shown)


def _folder(settings: Settings) -> Iterator[Finding]:
    home = settings.home.absolute()
    existing = next(path for path in (home, *home.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield Finding(
            "data folder", Verdict.PROBLEM, f"{existing} is not writable", "set ROTA_HOME"
        )
        return
    free = shutil.disk_usage(existing).free
    message = f"{home}, {free // 2**20} MiB free"
    if free < _LITTLE_SPACE:
        yield Finding("data folder", Verdict.WARNING, message, "free some space")
    else:
        yield Finding("data folder", Verdict.OK, message)


def _zones(settings: Settings) -> Iterator[Finding]:
    names = zoneinfo.available_timezones()
    if "Europe/Berlin" in names:
        yield Finding("time zones", Verdict.OK, f"{len(names)} zones known")
    else:
        yield Finding("time zones", Verdict.PROBLEM, "no tz database", "pip install tzdata")


def _server(settings: Settings) -> Iterator[Finding]:
    if settings.url:
        yield from look_at_api(settings)
        return
    path = client_file(settings.home)
    try:
        note = json.loads(path.read_text("utf-8"))
        url, pid = str(note["url"]), int(note["pid"])
    except (FileNotFoundError, NotADirectoryError):
        yield Finding("server", Verdict.OK, "none runs on this data folder")
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} cannot be read: {error}"
        yield Finding("server", Verdict.WARNING, message, "it is rota up's: start that again")
    else:
        yield _noted_server(url, pid, worker_socket(settings.home))


def _noted_server(url: str, pid: int, worker: Path) -> Finding:
    if not _is_alive(pid):
        message = f"the one on {url} (pid {pid}) was killed"
        return Finding("server", Verdict.WARNING, message, "start it again with: rota up")
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), _SERVER_SECONDS):
            pass
    except OSError as error:
        message = f"{url} (pid {pid}) does not answer: {error}"
        return Finding("server", Verdict.WARNING, message, "look at its log; restart it")
    state = "reachable" if worker.exists() else "missing"
    return Finding("server", Verdict.OK, f"answers on {url} (pid {pid}); worker socket {state}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, and there
        return True
    return True


def _guardian(settings: Settings) -> Iterator[Finding]:
    command = guardian_command(["/bin/true"], namespace="require")
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=_GUARDIAN_SECONDS, check=False
    )
    if ended.returncode == 0:
        yield Finding("guardian", Verdict.OK, "process namespaces work: no job survives its worker")
    else:
        yield Finding(
            "guardian",
            Verdict.WARNING,
            "no process namespaces here: if guardian and launcher are both killed at the very same"
            " time, jobs may survive them",
            "run as root, or allow user namespaces",
        )
