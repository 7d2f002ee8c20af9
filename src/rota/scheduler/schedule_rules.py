"""What job versions say about their schedules, compiled once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog

from rota.domain.calendars import Blackout
from rota.domain.errors import Invalid
from rota.domain.firing import FiringRules
from rota.domain.ids import JobId
from rota.domain.jobfile import read_job
from rota.operations.backends import Backends
from rota.operations.timetables import timetable
from rota.ports.records import DueSchedule
from rota.scheduler.blackouts import Blackouts

log = structlog.get_logger()

_Ref = tuple[JobId, int]  # a job and its version


@dataclass(slots=True)
class _Version:
    """A readable version of a job, with the rules as its calendars were when last looked at."""

    rules: FiringRules
    project: str
    calendars: tuple[str, ...]

    def under(self, blackouts: tuple[Blackout, ...]) -> FiringRules:
        if self.rules.blackouts != blackouts:
            self.rules = replace(self.rules, blackouts=blackouts)
        return self.rules


class ScheduleRules:
    """The rules by which due times of a schedule are answered.

    About `max_kept` versions are kept, and always those that the latest look has found.
    """

    def __init__(
        self,
        backends: Backends,
        grace: timedelta,
        max_kept: int,
        let_others_go_on: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = backends.store
        self._specs = backends.specs
        self._grace = grace
        self._max_kept = max_kept
        self._let_others_go_on = let_others_go_on
        self._versions: dict[_Ref, _Version | None] = {}  # None: it is not readable
        self._found: set[_Ref] = set()  # by the latest look
        self._blackouts = Blackouts(backends.store)

    def begin_look(self) -> None:
        """Calendars are read anew from here on."""
        self._blackouts.begin_look()
        if len(self._versions) > self._max_kept:
            self._versions = {
                ref: version for ref, version in self._versions.items() if ref in self._found
            }
        self._found.clear()

    async def learn(self, due: Sequence[DueSchedule]) -> None:
        """Compile job versions seen for the first time, and read the calendars of all.

        Others get their turn between two versions.
        """
        found = {(d.job_id, d.job_version): d for d in due}
        self._found.update(found)
        unknown = [ref for ref in found if ref not in self._versions]
        documents = await self._store.documents(unknown) if unknown else {}
        for ref, document in documents.items():
            self._versions[ref] = self._compiled(document, found[ref])
            await self._let_others_go_on()
        versions = [self._versions.get((d.job_id, d.job_version)) for d in due]
        await self._blackouts.look(
            {(v.project, name) for v in versions if v for name in v.calendars}
        )

    def of(self, due: DueSchedule) -> FiringRules | None:
        """The same object while nothing changes; None: it cannot be read, so it may not fire."""
        version = self._versions.get((due.job_id, due.job_version))
        if version is None or not version.calendars:
            return version.rules if version else None
        blackouts = self._blackouts.of(version.project, version.calendars)
        return None if blackouts is None else version.under(blackouts)

    def _compiled(self, document: Mapping[str, Any], due: DueSchedule) -> _Version | None:
        """None if this release cannot read it: the others must go on."""
        try:
            spec = read_job(document)
            self._specs.remember((due.job_id, due.job_version), spec)  # it is dispatched soon
            table = timetable(spec, due.anchor)
        except Invalid as error:
            log.error(
                "schedule.unreadable", job_id=due.job_id, version=due.job_version, error=str(error)
            )
            return None
        if table is None or spec.schedule is None:
            return None
        rules = FiringRules(table, spec.schedule.misfire, self._grace)
        return _Version(rules, spec.project, spec.schedule.calendars)
