"""Whether any process of a worker's earlier life is left on this machine.

A worker notes its pid namespace before it registers. When no process is left in that namespace,
everything it ever started is provably gone, and what it held may be tried again at once instead
of after its lease. The kernel gives the number of a namespace to another one soon after its end,
so the note also says when its first process began.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rota.ports.clock import Clock

_NOTE = "namespace.json"
_PATIENCE = timedelta(seconds=3)  # a killed namespace needs a moment to empty
_LOOK_AGAIN = timedelta(milliseconds=20)
_FIRST_PROCESS = "1"
_START_TIME = 19  # its place in /proc/PID/stat after the name


def leave_note(folder: Path) -> None:
    """Called by the worker itself, inside its namespace, before it registers."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    note = {"boot": _boot_id(), "namespace": _namespace_of("self"), "began": _began(_FIRST_PROCESS)}
    temporary = folder / f"{_NOTE}.new"
    temporary.write_text(json.dumps(note), "utf-8")
    temporary.replace(folder / _NOTE)


async def is_gone(folder: Path, clock: Clock) -> bool:
    """Called by the launcher, outside. Waits a little for a dying predecessor."""
    try:
        note = json.loads((folder / _NOTE).read_text("utf-8"))
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    if note["boot"] != _boot_id():
        return True
    if note["namespace"] == _namespace_of("self"):
        return False  # it shared our namespace: nothing can be told
    deadline = clock.monotonic() + _PATIENCE.total_seconds()
    while clock.monotonic() < deadline:
        if not _is_inhabited(note["namespace"], note["began"]):
            return True
        await clock.sleep(_LOOK_AGAIN)
    return False


def _is_inhabited(namespace: str, began: int) -> bool:
    processes = (path.name for path in Path("/proc").glob("[0-9]*"))
    members = [pid for pid in processes if _namespace_of(pid) == namespace]
    for pid in members:
        with suppress(OSError):  # it ended while we looked
            if _is_first_of_its_namespace(pid):
                return _began(pid) == began
    return bool(members)


def _namespace_of(pid: str) -> str:
    with suppress(OSError):
        return str(Path("/proc", pid, "ns/pid").readlink())
    return ""


def _is_first_of_its_namespace(pid: str) -> bool:
    status = Path("/proc", pid, "status").read_text("utf-8")
    [pids] = [line for line in status.splitlines() if line.startswith("NSpid:")]
    return pids.split()[-1] == _FIRST_PROCESS


def _began(pid: str) -> int:
    """When a process was started, in the kernel's ticks since the machine booted."""
    after_name = Path("/proc", pid, "stat").read_text("utf-8").rpartition(")")[2]
    return int(after_name.split()[_START_TIME])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
