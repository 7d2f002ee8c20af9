"""Changes of schedules that may fire while the change is prepared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rota.domain.errors import Conflict

T = TypeVar("T")

_TRIES = 5


async def despite_firing(change: Callable[[], Awaitable[T]]) -> T:
    """Prepare and make a change, a few times over while a schedule moves in between."""
    tries_left = _TRIES
    while True:
        tries_left -= 1
        try:
            return await change()
        except Conflict as conflict:
            if conflict.code != "schedule_moved" or not tries_left:
                raise
