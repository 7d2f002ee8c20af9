"""Servers in the foreground, until TERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from rota.clock import SystemClock
from rota.runtime import supervision
from rota.runtime.machine import Machine
from rota.runtime.server import Running, Server, stop_on_signals
from rota.runtime.settings import DEFAULT_GRPC_LISTEN, ServerRole, Settings, secure_home
from rota.runtime.supervision import told_alone

OnReady = Callable[[Running], None]

# The threads of SQLite let go of the interpreter at every row. With Python's own 5 ms until they
# get it back from a busy event loop, writing a hundred rows can take as many milliseconds.
_SWITCH_SECONDS = 0.0001


def run_machine(settings: Settings, files: Sequence[Path], on_ready: OnReady) -> None:
    """`rota up`: a server with all roles and a worker; errors of the start are raised."""
    secure_home(settings.home)
    everything = replace(settings, roles=tuple(ServerRole))
    _run(settings, on_ready, lambda: Server(everything, files, Machine(settings, SystemClock())))


def run_server(settings: Settings, on_ready: OnReady) -> None:
    """`rota server`: one of any number of servers; errors of the start are raised."""
    if settings.needs_home:
        secure_home(settings.home)
    listening = replace(settings, grpc_listen=settings.grpc_listen or DEFAULT_GRPC_LISTEN)
    _run(settings, on_ready, lambda: Server(listening))


def _run(settings: Settings, on_ready: OnReady, make: Callable[[], Server]) -> None:
    supervision.set_up(settings.log_level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with told_alone():
        uvloop.run(_serve(make, on_ready))


async def _serve(make: Callable[[], Server], on_ready: OnReady) -> None:
    server = make()
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    ready.add_done_callback(
        lambda future: None if future.cancelled() else _announce(future.result(), on_ready)
    )
    stop_on_signals(server)
    await server.run(ready)


def _announce(running: Running, on_ready: OnReady) -> None:
    # All that there is now stays: to search it for garbage again and again would hold up whatever
    # is due for 60 ms each time.
    gc.collect()
    gc.freeze()
    on_ready(running)
