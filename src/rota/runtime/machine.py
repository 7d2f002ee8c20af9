"""What `rota up` has around its server: a worker beside it, and what the user's programs need."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from rota.domain.errors import Denied
from rota.link.local import LocalLinkServer
from rota.operations import tokens
from rota.operations.backends import Backends
from rota.ports.clock import Clock
from rota.ports.link import WorkerDesk
from rota.ports.records import Role
from rota.runtime.settings import Settings, client_file, worker_socket
from rota.runtime.worker import GuardedWorker


async def write_client_file(backends: Backends, settings: Settings, url: str) -> None:
    """Let the CLI and SDK of the same user find this server; keeps a token that still works."""
    path = client_file(settings.home)
    secret = await _kept_token(backends, settings.home / "local.token")
    temporary = path.with_suffix(".new")
    _write(temporary, json.dumps({"url": url, "token": secret, "pid": os.getpid()}))
    temporary.replace(path)


async def _kept_token(backends: Backends, path: Path) -> str:
    with contextlib.suppress(OSError, Denied):
        secret = _read(path)
        await tokens.authenticate(backends, secret)
        return secret
    _, secret = await tokens.create_token(
        backends.store, name="local", role=Role.ADMIN, actor="rota up"
    )
    _write(path, secret)
    return secret


def _read(path: Path) -> str:
    return path.read_text("utf-8").strip()


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


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
