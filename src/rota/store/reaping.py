"""Ending the sessions of workers that are gone, so that none of them holds up the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import structlog

from rota.domain.ids import SessionId
from rota.ports.records import Wakes

log = structlog.get_logger()

# Sessions with the beats after which nothing was heard of them; None: the session is over, but
# holds something.
Silent: TypeAlias = Mapping[SessionId, int | None]
Reaped: TypeAlias = tuple[frozenset[SessionId], Wakes]


class Reaping:
    """Ends sessions in one transaction; if that fails, each in one of its own."""

    def __init__(
        self, reap: Callable[[Silent], Awaitable[Reaped]], check: Callable[[], Awaitable[object]]
    ) -> None:
        self._reap = reap
        self._check = check  # raises if it is the store that fails
        self._told: set[SessionId] = set()

    async def reap(self, silent: Silent) -> Reaped:
        """Those that ended, and whom that concerns. One that cannot end is told once, and left."""
        self._told &= silent.keys()
        if not silent:
            return frozenset(), Wakes()
        try:
            return await self._reap(silent)
        except Exception:  # noqa: BLE001 - whatever it is, those it is not about go on
            await self._check()
        reaped = [await self._reap_alone(session, beats) for session, beats in silent.items()]
        gone = frozenset[SessionId]().union(*(gone for gone, _ in reaped))
        return gone, _together(wakes for _, wakes in reaped)

    async def _reap_alone(self, session: SessionId, beats: int | None) -> Reaped:
        try:
            return await self._reap({session: beats})
        except Exception as error:
            await self._check()
            if session not in self._told:
                self._told.add(session)
                log.error("session.cannot_end", session=session, error=str(error), exc_info=True)
            return frozenset(), Wakes()


def _together(wakes: Iterable[Wakes]) -> Wakes:
    pools: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    sessions: set[SessionId] = set()
    times = False
    for each in wakes:
        for pool, runs in each.pools.items():
            pools[pool].append(runs)
        sessions |= each.sessions
        times |= each.times
    named = {pool: sum(runs, ()) if all(runs) else () for pool, runs in pools.items()}
    return Wakes(named, frozenset(sessions), times)
