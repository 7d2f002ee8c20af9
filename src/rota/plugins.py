"""Plug-ins: types of jobs that a Python package brings. What their authors need is here.

    from rota.plugins import Plugin

    class Ticket:
        def submit(self, run): ...
        def status(self, ticket): ...

    plugin = Plugin(api_version=1, type="ticket", executor=Ticket)

and in the package's `pyproject.toml`

    [project.entry-points."rota.executors"]
    ticket = "rota_ticket:plugin"

A worker loads it if its setting `executors` names it. The rest is told by
`docs/howto/write-a-job-type.md`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.sdk.executors import NotSubmitted, RemoteRun, Status

if TYPE_CHECKING:
    from rota.ports.clock import Clock
    from rota.ports.executor import AttemptReports, Executor, RemoteWork, Spawner

__all__ = [
    "API_VERSION",
    "ENTRY_POINTS",
    "NotSubmitted",
    "Place",
    "Plugin",
    "RemoteRun",
    "Status",
]

API_VERSION = 1  # of what plug-ins and workers know of one another
ENTRY_POINTS = "rota.executors"


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker gives the executor that a plug-in builds."""

    reports: AttemptReports
    remote: RemoteWork  # keeps what names work elsewhere
    clock: Clock
    spawner: Spawner  # starts processes that die with the worker's lease
    folder: Path  # for its files; what is there stays
    may_start: Callable[[], bool]  # False: the lease is over, nothing may be begun


@dataclass(frozen=True, slots=True)
class Plugin:
    """A type of jobs. It has either a class or a function that builds an executor.

    `executor` is a class with `submit`, `status` and perhaps `cancel`: the worker keeps what names
    the work, looks after it, and goes on with it after a loss. `build` makes an executor of the
    full port, `rota.ports.executor.Executor`, which does all of that itself; it runs in the
    worker's own process and must never block.

    `schema` is the JSON Schema of the parameters of its jobs; None: that of the class, if it has
    one.
    """

    api_version: int  # that it was written for
    type: str  # also the name of its entry point
    executor: builtins.type | None = None
    build: Callable[[Place], Executor] | None = None
    schema: Mapping[str, Any] | None = None
