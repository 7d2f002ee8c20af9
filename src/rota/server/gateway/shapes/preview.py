"""Schedules before they are saved."""

from __future__ import annotations

from datetime import datetime

from rota.domain.schedule import Explanation, Kind
from rota.server.gateway.shapes.models import Answer
from rota.server.gateway.shapes.problem import Fault


class ClockChangeShape(Answer):
    """A change of clocks that moves, drops or doubles a due time."""

    at: datetime  # the first instant on the new offset
    text: str  # what it does to the schedule


class PreviewShape(Answer):
    """What a schedule means."""

    words: str
    kinds: list[Kind]  # of each expression: how it behaves when clocks are changed
    next: list[str]  # RFC 3339, with the offset of the schedule's zone
    warnings: list[Fault]
    clock_changes: list[ClockChangeShape]

    @classmethod
    def of(cls, explained: Explanation) -> PreviewShape:
        return cls(
            words=explained.words,
            kinds=list(explained.kinds),
            next=[time.at.isoformat() for time in explained.next],
            warnings=[Fault.model_validate(warning) for warning in explained.warnings],
            clock_changes=[ClockChangeShape.model_validate(it) for it in explained.clock_changes],
        )
