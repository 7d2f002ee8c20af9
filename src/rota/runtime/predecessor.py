"""Whether any process of a worker's earlier life is left on this machine.

A worker notes its pid namespace before it registers. When no process is left in that namespace,
everything it ever started is provably gone, and what it held may be tried again at once instead
of after its lease.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rota.ports.clock import Clock

_NOTE = "namespace.json"
_PATIENCE = timedelta(seconds=3)  # a killed namespace needs a moment to empty
_LOOK_AGAIN = timedelta(milliseconds=20)


def leave_note(folder: Path) -> None:
    """Called by the worker itself, inside its namespace, before it registers."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    note = {"boot": _boot_id(), "namespace": _own_namespace()}
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
    if note["namespace"] == _own_namespace():
        return False  # it shared our namespace: nothing can be told
    deadline = clock.monotonic() + _PATIENCE.total_seconds()
    while clock.monotonic() < deadline:
        if not _is_inhabited(note["namespace"]):
            return True
        await clock.sleep(_LOOK_AGAIN)
    return False


def _is_inhabited(namespace: str) -> bool:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it ended while we looked
                if str(Path(entry.path, "ns/pid").readlink()) == namespace:
                    return True
    return False


def _own_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
