"""Announcements to other systems, from a server: which addresses and secrets they may have.

The settings are those of jobs of type `http`: `outgoing_networks` and `http_secrets`. A server that
has none of them reaches public addresses only, and has no secrets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rota.domain.errors import Invalid, Unavailable
from rota.domain.external import build_call, place_of, secrets_of
from rota.executors.http_secrets import WorkerSecrets, read_secrets
from rota.outgoing import Outgoing, Request, reason_phrase
from rota.ports.external import Message
from rota.runtime.settings import Settings

_MAX_ANSWER = 4 * 1024  # bytes that are read of an answer which nobody looks at


class HttpHerald:
    """Implements `rota.ports.external.Herald`."""

    def __init__(self, outgoing: Outgoing, secrets: Path | None = None) -> None:
        self._outgoing = outgoing
        self._secrets = secrets

    async def send(self, message: Message) -> None:
        call, occasion = message.call, message.occasion
        target = place_of(call, occasion)
        names = secrets_of(call)
        values = self._known().values(names, occasion.project, target) if names else {}
        built = build_call(message.kind, call, occasion, message.id, values)
        request = Request(built.method, built.target, built.headers, built.body)
        answer = await self._outgoing.send(request, call.timeout.total_seconds(), _MAX_ANSWER)
        if not 200 <= answer.status < 300:
            raise Unavailable(f"{target.shown} answered {reason_phrase(answer.status)}")

    def _known(self) -> WorkerSecrets:
        """Return the secrets of the settings as they are in their file now."""
        if self._secrets is None:
            raise Invalid("this server has no secrets: its setting http_secrets is empty")
        try:
            return WorkerSecrets(read_secrets(self._secrets))
        except ValueError as error:
            raise Invalid(f"the server's http_secrets cannot be read: {error}") from error


@asynccontextmanager
async def open_herald(settings: Settings) -> AsyncIterator[HttpHerald]:
    """Open what sends announcements by these settings."""
    outgoing = Outgoing(settings.outgoing_networks)
    try:
        yield HttpHerald(outgoing, settings.http_secrets)
    finally:
        await outgoing.close()
