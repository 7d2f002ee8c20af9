"""The session of a worker's earlier life, if no process of it can be left.

A worker notes its session and its pid namespace once it has registered. When no process is left in
that namespace, everything it ever started is provably gone, and what it held may be tried again at
once instead of after its lease. The kernel gives the number of a namespace to another one soon
after its end, so the note also says when its first process began.

A data folder may be new, or a copy from another machine or container, where the worker of the note
may still be alive. Only who can see that namespace can tell: the launcher that made it, or another
one beside it. In all other cases nothing is claimed, and the lease decides.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from rota.ports.clock import Clock

_NOTE = "namespace.json"
_PATIENCE = timedelta(seconds=3)  # a killed namespace needs a moment to empty
_LOOK_AGAIN = timedelta(milliseconds=20)
_FIRST_PROCESS = "1"
_START_TIME = 19  # its place in /proc/PID/stat after the name


class _Note(msgspec.Struct, frozen=True):
    session: str
    launched_from: str
    namespace: str
    began: int  # the first process of the namespace, in the kernel's ticks since the boot


def vantage() -> str:
    """From where the launcher sees processes: a namespace of a machine that has booted once."""
    return f"{_boot_id()} {_namespace_of('self')}"


def leave_note(folder: Path, session: str, launched_from: str) -> None:
    """Called by the worker itself, inside its namespace; `launched_from` is its launcher's view."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    note = _Note(session, launched_from, _namespace_of("self"), _began(_FIRST_PROCESS))
    temporary = folder / f"{_NOTE}.new"
    temporary.write_bytes(msgspec.json.encode(note))
    temporary.replace(folder / _NOTE)


async def ended_session(folder: Path, clock: Clock) -> str:
    """Called by the launcher, outside; "" if there was none or nothing can be told.

    Waits a little for a dying predecessor.
    """
    try:
        note = msgspec.json.decode((folder / _NOTE).read_bytes(), type=_Note)
    except (OSError, msgspec.MsgspecError):
        return ""
    if note.launched_from != vantage() or note.namespace == _namespace_of("self"):
        return ""  # it is out of our sight, or shared our namespace
    deadline = clock.monotonic() + _PATIENCE.total_seconds()
    while clock.monotonic() < deadline:
        if not _is_inhabited(note.namespace, note.began):
            return note.session
        await clock.sleep(_LOOK_AGAIN)
    return ""


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
