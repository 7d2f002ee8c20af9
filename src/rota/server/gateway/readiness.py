"""Whether this server can do its work."""

from __future__ import annotations

import time
from collections.abc import Callable

from rota.domain.errors import Unavailable
from rota.operations.backends import Backends

_GOOD_FOR_SECONDS = 1.0


class Readiness:
    """Checks the store, which is a write, at most once a second: anyone may ask.

    `hindrance` says what else keeps this server from its roles; "" when nothing does.
    """

    def __init__(
        self,
        backends: Backends,
        monotonic: Callable[[], float] = time.monotonic,
        hindrance: Callable[[], str] = str,
    ) -> None:
        self._backends = backends
        self._hindrance = hindrance
        self._monotonic = monotonic
        self._checked_at = float("-inf")
        self._error: Unavailable | None = None

    async def require(self) -> None:
        """`Unavailable` unless nothing hinders it and the store can be read and written."""
        if why := self._hindrance():
            raise Unavailable(why, code="not_ready")
        now = self._monotonic()
        if now - self._checked_at >= _GOOD_FOR_SECONDS:
            self._checked_at = now
            self._error = await self._check()
        if self._error is not None:
            raise self._error

    async def _check(self) -> Unavailable | None:
        try:
            await self._backends.store.check()
        except Unavailable as error:
            return error
        return None
