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
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from rota.adapters.clock import SystemClock
from rota.adapters.store.sqlite.connection import OLDEST_SQLITE
from rota.domain.durations import format_duration
from rota.domain.ids import instant
from rota.guardian import guardian_command
from rota.runtime.config import Settings
from rota.runtime.paths import client_file, worker_socket

_LITTLE_SPACE = 256 * 1024 * 1024
_CLOCK_TOLERANCE = timedelta(seconds=2)
_GUARDIAN_SECONDS = 10
_SERVER_SECONDS = 2


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    message: str
    advice: str = ""


def run(settings: Settings) -> list[Finding]:
    """All findings; nothing is changed."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _python,
        _folder,
        _store,
        _clock,
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


def _store(settings: Settings) -> Iterator[Finding]:
    path = settings.store_path
    if not path.exists():
        yield Finding("store", Verdict.OK, "not created yet (rota up creates it)")
        return
    try:
        with closing(_reading(path)) as connection:
            [result] = connection.execute("PRAGMA quick_check").fetchone()
            [version] = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        yield Finding("store", Verdict.PROBLEM, f"{path}: {error}", "restore it from a backup")
        return
    if result != "ok":
        yield Finding("store", Verdict.PROBLEM, f"{path} is damaged: {result}", "restore a backup")
    else:
        yield Finding("store", Verdict.OK, f"{path}, schema {version}")


def _clock(settings: Settings) -> Iterator[Finding]:
    mark = _clock_mark(settings.store_path)
    if mark is None:
        return
    ahead = instant(mark) - SystemClock().now()
    if ahead > _CLOCK_TOLERANCE:
        yield Finding(
            "clock",
            Verdict.WARNING,
            f"the store's clock is {format_duration(ahead)} ahead of this machine's",
            "check the time service; Rota never goes back and waits until the clock caught up",
        )
    else:
        yield Finding("clock", Verdict.OK, "this machine's clock is not behind the store's")


def _clock_mark(path: Path) -> int | None:
    if not path.exists():
        return None
    try:
        with closing(_reading(path)) as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'clock'").fetchone()
    except sqlite3.Error:
        return None
    return int(row[0]) if row else None


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def _zones(settings: Settings) -> Iterator[Finding]:
    names = zoneinfo.available_timezones()
    if "Europe/Berlin" in names:
        yield Finding("time zones", Verdict.OK, f"{len(names)} zones known")
    else:
        yield Finding("time zones", Verdict.PROBLEM, "no tz database", "pip install tzdata")


def _server(settings: Settings) -> Iterator[Finding]:
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
