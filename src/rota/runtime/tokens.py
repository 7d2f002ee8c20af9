"""Tokens made directly in the store: the bootstrap where no server can be asked yet."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.adapters.store.sqlite.opening import open_sqlite
from rota.domain.errors import Invalid
from rota.operations import tokens
from rota.ports.records import Role
from rota.runtime.config import Settings


def create(
    settings: Settings, name: str, role: str, lifetime: timedelta | None = None
) -> tuple[str, str]:
    """A new token as (id, secret); works with and without a running server."""
    if role not in set(Role):
        raise Invalid(f'"{role}" is not a role', hint=f"one of {', '.join(Role)}")
    return asyncio.run(_create(settings, name, Role(role), lifetime))


async def _create(
    settings: Settings, name: str, role: Role, lifetime: timedelta | None
) -> tuple[str, str]:
    store = await open_sqlite(settings.store_path, exclusive=False)
    try:
        return await tokens.create_token(
            store, name=name, role=role, actor="rota token create", lifetime=lifetime
        )
    finally:
        await store.close()
