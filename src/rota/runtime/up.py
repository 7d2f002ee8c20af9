"""`rota up`: a server and a worker with one command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from rota.runtime import logs
from rota.runtime.config import Settings
from rota.runtime.server import Running, Server, stop_on_signals
from rota.runtime.supervision import told_alone


def main(settings: Settings, files: Sequence[Path], on_ready: Callable[[Running], None]) -> None:
    """Run in the foreground until TERM or Ctrl-C; errors of the start are raised."""
    logs.set_up(settings.log_level)
    with told_alone():
        uvloop.run(_run(settings, files, on_ready))


async def _run(
    settings: Settings, files: Sequence[Path], on_ready: Callable[[Running], None]
) -> None:
    server = Server(settings, files)
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    ready.add_done_callback(
        lambda future: None if future.cancelled() else on_ready(future.result())
    )
    stop_on_signals(server)
    await server.run(ready)
