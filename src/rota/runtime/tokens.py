"""Tokens made directly in the store: the bootstrap where no server can be asked yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from rota.domain.errors import Invalid
from rota.operations import tokens
from rota.ports.records import Role
from rota.ports.store import Store
from rota.runtime.backends import open_store
from rota.runtime.settings import Settings, secure_home

Made = tuple[str, str]  # id, secret


def create(
    settings: Settings, name: str, role: str, lifetime: timedelta | None = None
) -> tuple[str, str]:
    """A new token as (id, secret); works with and without a running server."""
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
    """The same for a worker."""

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
