"""What `rota up` leaves in its data folder, so that the CLI and SDK of its user find it."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from rota.domain.errors import Denied
from rota.operations import tokens
from rota.operations.backends import Backends
from rota.ports.records import Role
from rota.runtime.paths import client_file
from rota.runtime.settings import Settings


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
