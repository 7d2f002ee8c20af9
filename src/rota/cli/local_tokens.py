"""Tokens from the server that is named, else straight from the store of this machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.cli.asking import ask
from rota.cli.local_errors import told_as_failures
from rota.cli.local_settings import load_settings
from rota.cli.options import Remote
from rota.runtime import tokens
from rota.sdk import calls


def create_token(
    name: str, role: str, lifetime: timedelta | None, remote: Remote
) -> dict[str, Any]:
    """The new token as the API shows it, secret included."""
    settings = load_settings(url=remote.url)
    if settings.url:
        expires_in = None if lifetime is None else f"{lifetime.total_seconds():f}s"
        with remote.connect() as client:
            data: dict[str, Any] = ask(
                client, calls.create_token(name, role, expires_in=expires_in)
            ).data
            return data
    with told_as_failures():
        token, secret = tokens.create(settings, name, role, lifetime)
    return {"id": token, "name": name, "role": role, "secret": secret}
