"""What `rota up` has around its server: a worker beside it, and what the user's programs need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from rota.adapters.link.local import LocalLinkServer
from rota.operations import tokens
from rota.operations.backends import Backends
from rota.ports.clock import Clock
from rota.ports.link import WorkerDesk
from rota.runtime.guarded_worker import GuardedWorker
from rota.runtime.local_client import write_client_file
from rota.runtime.paths import client_file, worker_socket
from rota.runtime.settings import Settings


class Machine:
    """The data folder of a machine with everything on it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        # Its worker serves this very server, whatever others the settings name.
        self.worker = GuardedWorker(replace(settings, server=(), worker_token=""), clock)

    @asynccontextmanager
    async def door(self, desk: WorkerDesk) -> AsyncIterator[None]:
        """Where workers of this machine connect."""
        home = self._settings.home
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        link = LocalLinkServer(desk, worker_socket(home))
        await link.open()
        try:
            yield
        finally:
            await link.close()
            client_file(home).unlink(missing_ok=True)

    async def introduce(self, backends: Backends, url: str) -> str:
        """Leave a note for the user's programs; returns a link that logs a person in, once."""
        await write_client_file(backends, self._settings, url)
        secret = await tokens.create_login_link_secret(backends.store, actor="rota up")
        return f"{url}/login?token={secret}"
