"""Tokens from the server that is named, else straight from the store of this machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.cli.asking import ask
from rota.cli.local_errors import told_as_failures
from rota.cli.local_settings import load_settings
from rota.cli.options import Remote
from rota.runtime import tokens
from rota.sdk import token_calls
from rota.sdk.exchange import Call


def create_token(
    name: str, role: str, lifetime: timedelta | None, remote: Remote
) -> dict[str, Any]:
    """The new token as the API shows it, secret included."""
    settings = load_settings(url=remote.url)
    if settings.url:
        return _asked(remote, token_calls.create_token(name, role, expires_in=_text(lifetime)))
    with told_as_failures():
        token, secret = tokens.create(settings, name, role, lifetime)
    return {"id": token, "name": name, "role": role, "secret": secret}


def create_worker_token(
    name: str, pool: str | None, lifetime: timedelta | None, remote: Remote
) -> dict[str, Any]:
    """The same for a worker."""
    settings = load_settings(url=remote.url)
    if settings.url:
        call = token_calls.create_worker_token(name, pool=pool, expires_in=_text(lifetime))
        return _asked(remote, call)
    with told_as_failures():
        token, secret = tokens.create_for_worker(settings, name, pool, lifetime)
    return {"id": token, "name": name, "pool": pool, "secret": secret}


def _asked(remote: Remote, call: Call[Any]) -> dict[str, Any]:
    with remote.connect() as client:
        data: dict[str, Any] = ask(client, call).data
        return data


def _text(lifetime: timedelta | None) -> str | None:
    return None if lifetime is None else f"{lifetime.total_seconds():f}s"
