"""Events as CloudEvents."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from rota.ports.records import Event
from rota.server.gateway.shapes.models import Answer


class EventShape(Answer):
    """A CloudEvent of the history."""

    specversion: Literal["1.0"] = "1.0"
    id: str  # grows; give the last one seen as `after` to go on
    source: str
    type: str  # rota.run.finished, rota.job.created, …
    time: datetime
    datacontenttype: Literal["application/json"] = "application/json"
    subject: str | None  # what it is about, if that is one thing
    data: dict[str, Any]  # ids, actor, and what else was recorded

    @classmethod
    def of(cls, event: Event, source: str, *, only: str = "") -> EventShape:
        """With `only`, of all the things a batch names this one alone is told."""
        ids = [only] if only else list(event.ids)
        return cls(
            id=str(event.seq),
            source=source,
            type=f"rota.{event.kind}",
            time=event.at,
            subject=ids[0] if len(ids) == 1 else None,
            data={**event.data, "ids": ids, "actor": event.actor, "project": event.project},
        )
