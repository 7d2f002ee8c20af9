"""Waiting until a drained worker holds nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from rota.sdk.client import Client
from rota.sdk.cluster_answers import Worker

_LOOK_AGAIN_SECONDS = 0.5


def held_by(presences: Iterable[Worker], worker: str) -> int:
    """How many attempts a worker holds, in all its sessions."""
    return sum(each.running for each in presences if each.worker == worker)


def is_drained(presences: Iterable[Worker], worker: str) -> bool:
    """Whether somebody asked a worker to take nothing new."""
    return any(each.draining for each in presences if each.worker == worker)


def wait_until_empty(client: Client, worker: str) -> None:
    while held_by(client.list_workers().items, worker):
        threading.Event().wait(_LOOK_AGAIN_SECONDS)
