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
        self._earlier: dict[_Ref, tuple[Calendar, Blackout | None]] = {}

    def begin_look(self) -> None:
        """What is not read from here on will be forgotten."""
        self._earlier, self._known = self._known, {}

    async def look(self, refs: Iterable[_Ref]) -> None:
        """Read those calendars that this look has not read yet; compile what has changed."""
        names: dict[str, list[str]] = defaultdict(list)
        for project, name in set(refs) - self._known.keys():
            names[project].append(name)
        for project, wanted in names.items():
            for stored in await self._store.calendars(project, wanted):
                ref, calendar = (project, stored.calendar.name), stored.calendar
                known = self._earlier.get(ref)
                if known is None or known[0] != calendar:
                    known = calendar, await _compiled(project, calendar)
                self._known[ref] = known

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
