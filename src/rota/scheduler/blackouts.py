"""The calendars of schedules that are due soon."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

import structlog

from rota.domain.calendars import Blackout, Calendar, compile_calendar
from rota.domain.errors import Invalid
from rota.ports.store import CalendarStore

log = structlog.get_logger()

_Ref = tuple[str, str]  # project and name


class Blackouts:
    """Compiled calendars, as the store had them at the latest look."""

    def __init__(self, store: CalendarStore) -> None:
        self._store = store
        self._known: dict[_Ref, tuple[Calendar, Blackout | None]] = {}

    async def look(self, refs: Iterable[_Ref]) -> None:
        """Read these calendars and forget all others; compile what has changed."""
        names: dict[str, list[str]] = defaultdict(list)
        for project, name in refs:
            names[project].append(name)
        found: dict[_Ref, tuple[Calendar, Blackout | None]] = {}
        for project, wanted in names.items():
            for stored in await self._store.calendars(project, wanted):
                ref, calendar = (project, stored.calendar.name), stored.calendar
                known = self._known.get(ref)
                if known is None or known[0] != calendar:
                    known = calendar, await _compiled(project, calendar)
                found[ref] = known
        self._known = found

    def of(self, project: str, names: Sequence[str]) -> tuple[Blackout, ...] | None:
        """Those of a schedule; None: one cannot be read, so nothing may be fired."""
        found = [self._known.get((project, name), (None, None))[1] for name in names]
        known = tuple(blackout for blackout in found if blackout is not None)
        return known if len(known) == len(found) else None


async def _compiled(project: str, calendar: Calendar) -> Blackout | None:
    try:
        # The first calendar with holidays imports their package, which takes a while.
        return await asyncio.to_thread(compile_calendar, calendar)
    except Invalid as error:
        log.error(
            "calendar.unreadable",
            project=project,
            calendar=calendar.name,
            error="; ".join(map(str, error.problems)),
            effect="the schedules that use it do not fire",
        )
        return None
