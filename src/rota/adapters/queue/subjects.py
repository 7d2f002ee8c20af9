"""NATS subjects and names for ours, which may hold anything: dots, wildcards, spaces."""

from __future__ import annotations

import hashlib
import string

_PLAIN = frozenset(string.ascii_letters + string.digits + "_-")
_MAX_TOKEN = 150


def token(name: str) -> str:
    """One token of a subject; different names give different tokens."""
    written = "".join(
        character if character in _PLAIN else "".join(f"={byte:02X}" for byte in character.encode())
        for character in name
    )
    if len(written) > _MAX_TOKEN:
        return f"=={hashlib.sha256(name.encode()).hexdigest()}"
    return written or "="


class Subjects:
    """The names that one deployment uses."""

    def __init__(self, deployment: str) -> None:
        self._prefix = token(deployment)

    @property
    def stream(self) -> str:
        return f"{self._prefix}-tickets"

    @property
    def all_tickets(self) -> str:
        return f"{self._prefix}.tickets.*"

    def tickets(self, pool: str) -> str:
        return f"{self._prefix}.tickets.{token(pool)}"

    def consumer(self, pool: str) -> str:
        return f"pool-{token(pool)}"

    def wake(self, topic: str) -> str:
        return f"{self._prefix}.wake.{token(topic)}"
