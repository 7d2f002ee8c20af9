"""The parts of `rota up` around its server: a worker, and files for the user's programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from rota.domain.access import Role, TokenTerms, Verb
from rota.domain.errors import Denied, Invalid, NotFound
from rota.link.local import LocalLinkServer
from rota.operations import credentials, tokens
from rota.operations.engine import Engine
from rota.ports.clock import Clock
from rota.ports.store import Store
from rota.ports.work import WorkerDesk
from rota.runtime.backends import open_store
from rota.runtime.home import (
    client_file,
    login_link_file,
    read_private,
    secure_home,
    token_file,
    worker_socket,
    write_private,
)
from rota.runtime.settings import Settings
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

    def __init__(self, settings: Settings, clock: Clock, new_key_ring: Path | None = None) -> None:
        self._settings = settings
        self.new_key_ring = new_key_ring  # made at this start
        # Its worker serves this very server, whatever others the settings name.
        self.worker = GuardedWorker(
            replace(settings, server=(), worker_token="", join_token=""), clock
        )

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
            login_link_file(home).unlink(missing_ok=True)

    async def introduce(self, engine: Engine, url: str) -> None:
        """Write the client file for the user's programs."""
        await write_client_file(engine, self._settings, url)


async def new_login_link(store: Store, site: str) -> str:
    """Make a one-time link to this site; older ones end."""
    secret = await tokens.create_login_link_secret(store, actor="rota up")
    return f"{site}/login?token={secret}"


def create_login_link(settings: Settings) -> str:
    """Make a one-time login link to the server that runs on this data folder or store."""
    site = settings.public_url or _noted_url(settings.home)
    if settings.is_alone and not settings.store_path.exists():
        raise NotFound(f"there is no store {settings.store_path}", code="store_not_found")
    return asyncio.run(_in_store(settings, partial(new_login_link, site=site)))


def _noted_url(home: Path) -> str:
    try:
        return str(json.loads(read_private(client_file(home)))["url"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotFound(
            f"no server runs on the data folder {home.absolute()}",
            code="server_not_found",
            hint="start one with rota up, name its data with ROTA_HOME, or set ROTA_PUBLIC_URL",
        ) from error


def keep_login_link(settings: Settings, link: str) -> Path:
    """Write a login link to a file that only this user can read; return its path."""
    path = login_link_file(settings.home)
    secure_home(settings.home)
    write_private(path, f"{link}\n")
    return path.absolute()


T = TypeVar("T")


def create(
    settings: Settings,
    name: str,
    role: str,
    *,
    project: str | None = None,
    verbs: Sequence[str] | None = None,
    lifetime: timedelta | None = None,
) -> tuple[str, str]:
    """Create a token and return (id, secret); works with and without a running server.

    Without a project it is for the installation.
    """
    if role not in set(Role):
        raise Invalid(f'"{role}" is not a role', hint=f"one of {', '.join(Role)}")
    terms = TokenTerms(project, None if verbs is None else frozenset(map(Verb, verbs)), lifetime)

    def make(store: Store) -> Awaitable[tuple[str, str]]:
        return tokens.create_token(
            store, name=name, role=Role(role), actor="rota token create", terms=terms
        )

    return asyncio.run(_in_store(settings, make))


def create_for_worker(
    settings: Settings, name: str, pool: str | None, lifetime: timedelta | None = None
) -> tuple[str, str]:
    """Create a worker's token and return (id, secret)."""

    def make(store: Store) -> Awaitable[tuple[str, str]]:
        return tokens.create_worker_token(
            store, name=name, pool=pool, actor="rota worker token create", lifetime=lifetime
        )

    return asyncio.run(_in_store(settings, make))


def create_join_token(
    settings: Settings, pool: str | None, uses: int, lifetime: timedelta
) -> tuple[str, str]:
    """Create a token by which workers join, and return (id, secret)."""

    def make(store: Store) -> Awaitable[tuple[str, str]]:
        actor = "rota worker join-token create"
        return credentials.create_join_token(
            store, actor=actor, pool=pool, uses=uses, lifetime=lifetime
        )

    return asyncio.run(_in_store(settings, make))


async def _in_store(settings: Settings, make: Callable[[Store], Awaitable[T]]) -> T:
    if not settings.store:
        secure_home(settings.home)
    store = await open_store(settings, exclusive=False)
    try:
        return await make(store)
    finally:
        await store.close()
