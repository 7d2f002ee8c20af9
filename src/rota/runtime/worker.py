"""`rota worker`: a worker for servers anywhere, or for the one of this machine's data folder."""

from __future__ import annotations

import asyncio
import signal

import uvloop

from rota.adapters.clock import SystemClock
from rota.domain.errors import Invalid, Unavailable
from rota.runtime import logs
from rota.runtime.guarded_worker import GuardedWorker
from rota.runtime.paths import worker_socket
from rota.runtime.settings import Settings
from rota.runtime.supervision import told_alone


def main(settings: Settings) -> None:
    """Run in the foreground until TERM or Ctrl-C."""
    _check(settings)
    logs.set_up(settings.log_level)
    with told_alone():
        uvloop.run(_run(settings))


def _check(settings: Settings) -> None:
    if settings.server and not settings.worker_token:
        raise Invalid(
            "a worker of a server elsewhere needs a token",
            code="no_worker_token",
            hint=f"set ROTA_WORKER_TOKEN to what `rota worker token create {settings.name}` shows",
        )
    if not settings.server and not worker_socket(settings.home).exists():
        raise Unavailable(
            f"no server runs on the data folder {settings.home.absolute()}",
            hint="start one with: rota up, or name one elsewhere with --server",
        )


async def _run(settings: Settings) -> None:
    worker = GuardedWorker(settings, SystemClock())
    asked = asyncio.Event()

    def stop() -> None:
        if asked.is_set():
            worker.kill()
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run()).add_done_callback(lambda _: asked.set())
        await asked.wait()
        await worker.stop()
