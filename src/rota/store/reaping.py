"""Ending the sessions of workers that are gone, so that none of them holds up the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import structlog

from rota.domain.ids import SessionId

log = structlog.get_logger()

# Sessions with the beats after which nothing was heard of them; None: the session is over, but
# holds something.
Silent: TypeAlias = Mapping[SessionId, int | None]
Reaped: TypeAlias = frozenset[SessionId]


class Reaping:
    """Ends sessions in one transaction; if that fails, each in one of its own."""

    def __init__(
        self, reap: Callable[[Silent], Awaitable[Reaped]], check: Callable[[], Awaitable[object]]
    ) -> None:
        self._reap = reap
        self._check = check  # raises if it is the store that fails
        self._told: set[SessionId] = set()

    async def reap(self, silent: Silent) -> Reaped:
        """Those that ended. One that cannot end is logged once, and left."""
        self._told &= silent.keys()
        if not silent:
            return frozenset()
        try:
            return await self._reap(silent)
        except Exception:  # noqa: BLE001 - whatever it is, those it is not about go on
            await self._check()
        reaped = [await self._reap_alone(session, beats) for session, beats in silent.items()]
        return frozenset[SessionId]().union(*reaped)

    async def _reap_alone(self, session: SessionId, beats: int | None) -> Reaped:
        try:
            return await self._reap({session: beats})
        except Exception as error:
            await self._check()
            if session not in self._told:
                self._told.add(session)
                log.error("session.cannot_end", session=session, error=str(error), exc_info=True)
            return frozenset()
