"""What is going to run out, by the latest prediction that this server made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.forecast.saturation import Saturation, resource_of


@dataclass(frozen=True, slots=True)
class _Shortage:
    resource: str
    begins_at: datetime
    ends_at: datetime


@dataclass(slots=True)
class ShortagesAhead:
    """Small enough to be kept until the next prediction, unlike a forecast."""

    _known: tuple[_Shortage, ...] = ()  # by their beginning

    def note(self, made_at: datetime, saturations: Iterable[Saturation]) -> None:
        """In place of what was known; the saturations are in order."""
        self._known = tuple(_shortages(made_at, saturations))

    def seconds_ahead(self, now: datetime) -> dict[str, float]:
        """How long until each resource runs out; 0 while it has."""
        found: dict[str, float] = {}
        for each in self._known:
            if each.ends_at > now:
                found.setdefault(each.resource, max((each.begins_at - now).total_seconds(), 0.0))
        return found


def _shortages(made_at: datetime, saturations: Iterable[Saturation]) -> Iterator[_Shortage]:
    for each in saturations:
        if resource := resource_of(each.what):
            begins_at, ends_at = (
                made_at + timedelta(seconds=at) for at in (each.begins_at, each.ends_at)
            )
            yield _Shortage(resource, begins_at, ends_at)
