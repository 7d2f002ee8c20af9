"""Events as CloudEvents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from rota.ports.records import Event
from rota.server.gateway.shapes.models import Answer

MOST_NAMED = 10  # of the ids of an event
_NO_NAMES: Mapping[str, str] = {}


class EventShape(Answer):
    """A CloudEvent of the history."""

    specversion: Literal["1.0"] = "1.0"
    id: str  # grows; give the last one seen as `after` to go on
    source: str
    type: str  # rota.run.finished, rota.job.created, …
    time: datetime
    datacontenttype: Literal["application/json"] = "application/json"
    subject: str | None  # what it is about, if that is one thing
    data: dict[str, Any]  # ids, names of the first of them, actor, and what else was recorded

    @classmethod
    def of(
        cls, event: Event, source: str, names: Mapping[str, str] = _NO_NAMES, *, only: str = ""
    ) -> EventShape:
        """With `only`, of all the things a batch names this one alone is told."""
        ids = [only] if only else list(event.ids)
        called = dict.fromkeys(names[each] for each in ids[:MOST_NAMED] if each in names)
        return cls(
            id=str(event.seq),
            source=source,
            type=f"rota.{event.kind}",
            time=event.at,
            subject=ids[0] if len(ids) == 1 else None,
            data={
                "names": [*called],
                **event.data,
                "ids": ids,
                "actor": event.actor,
                "project": event.project,
            },
        )


def named_in(events: Iterable[Event]) -> list[str]:
    """The ids of events whose names are told, each once."""
    return list(dict.fromkeys(each for event in events for each in event.ids[:MOST_NAMED]))
