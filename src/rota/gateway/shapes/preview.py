"""Schedules before they are saved."""

from __future__ import annotations

from rota.domain.schedule import Kind
from rota.gateway.shapes.models import Answer
from rota.gateway.shapes.problem import Fault
from rota.operations.previewing import Preview


class PreviewShape(Answer):
    """What a schedule means."""

    words: str
    kinds: list[Kind]  # of each expression: how it behaves when clocks are changed
    next: list[str]  # RFC 3339, with the offset of the schedule's zone
    warnings: list[Fault]
    clock_changes: list[str]

    @classmethod
    def of(cls, preview: Preview) -> PreviewShape:
        return cls(
            words=preview.words,
            kinds=list(preview.kinds),
            next=[time.isoformat() for time in preview.times],
            warnings=[Fault.model_validate(warning) for warning in preview.warnings],
            clock_changes=list(preview.clock_changes),
        )
