"""The parts of `rota up` around its server: a worker, and files for the user's programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rota.domain.errors import Denied, Invalid
from rota.link.local import LocalLinkServer
from rota.operations import tokens
from rota.operations.engine import Engine
from rota.ports.clock import Clock
from rota.ports.records import Role
from rota.ports.store import Store
from rota.ports.work import WorkerDesk
from rota.runtime.backends import open_store
from rota.runtime.settings import (
    Settings,
    client_file,
    read_private,
    secure_home,
    token_file,
    worker_socket,
    write_private,
)
from rota.runtime.worker import GuardedWorker


async def write_client_file(engine: Engine, settings: Settings, url: str) -> None:
    """Let the CLI and SDK of the same user find this server; a token that still works is kept."""
    secret = await _kept_token(engine, token_file(settings.home))
    note = json.dumps({"url": url, "token": secret, "pid": os.getpid()})
    write_private(client_file(settings.home), note)


async def _kept_token(engine: Engine, path: Path) -> str:
    with contextlib.suppress(OSError, Denied):
        secret = read_private(path)
        await tokens.authenticate(engine, secret)
        return secret
    _, secret = await tokens.create_token(
        engine.store, name="local", role=Role.ADMIN, actor="rota up"
    )
    write_private(path, secret)
    return secret


class Machine:
    """Data folder of a machine with everything on it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        # Its worker serves this very server, whatever others the settings name.
        self.worker = GuardedWorker(replace(settings, server=(), worker_token=""), clock)

    @asynccontextmanager
    async def door(self, desk: WorkerDesk) -> AsyncIterator[None]:
        """Listen for workers of this machine."""
        home = self._settings.home
        link = LocalLinkServer(desk, worker_socket(home))
        await link.open()
        try:
            yield
        finally:
            await link.close()
            client_file(home).unlink(missing_ok=True)

    async def introduce(self, engine: Engine, url: str) -> str:
        """Write the client file for the user's programs; return a one-time login link."""
        await write_client_file(engine, self._settings, url)
        secret = await tokens.create_login_link_secret(engine.store, actor="rota up")
        return f"{url}/login?token={secret}"


Made = tuple[str, str]  # id, secret


def create(
    settings: Settings, name: str, role: str, lifetime: timedelta | None = None
) -> tuple[str, str]:
    """Create a token and return (id, secret); works with and without a running server."""
    if role not in set(Role):
        raise Invalid(f'"{role}" is not a role', hint=f"one of {', '.join(Role)}")

    def make(store: Store) -> Awaitable[Made]:
        return tokens.create_token(
            store, name=name, role=Role(role), actor="rota token create", lifetime=lifetime
        )

    return asyncio.run(_in_store(settings, make))


def create_for_worker(
    settings: Settings, name: str, pool: str | None, lifetime: timedelta | None = None
) -> tuple[str, str]:
    """Create a worker's token and return (id, secret)."""

    def make(store: Store) -> Awaitable[Made]:
        return tokens.create_worker_token(
            store, name=name, pool=pool, actor="rota worker token create", lifetime=lifetime
        )

    return asyncio.run(_in_store(settings, make))


async def _in_store(settings: Settings, make: Callable[[Store], Awaitable[Made]]) -> Made:
    if not settings.store:
        secure_home(settings.home)
    store = await open_store(settings, exclusive=False)
    try:
        return await make(store)
    finally:
        await store.close()
