"""Calls about events, and the parser of a live stream of them."""

from __future__ import annotations

from dataclasses import dataclass

from rota.api.answers import Page
from rota.api.events import Event
from rota.sdk.exchange import Call, get, live
from rota.sdk.verbs import Verb


def list_events(
    *,
    after: int | str | None = None,
    tail: int | None = None,
    limit: int | None = None,
    project: str | None = None,
) -> Call[Page[Event]]:
    """List events past a position (an event's id), or the latest ones, oldest first.

    `project` is another than the client's; `*`: all that the caller may see.
    """
    other = {} if project is None else {"project": project}
    return get(Page[Event], "/events", after=after, tail=tail, limit=limit, **other)


def event_stream(*, after: int | str | None = None) -> Call[bytes]:
    return live(get(bytes, "/events/stream", after=after))


class EventVerbs:
    list_events = Verb(list_events)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: str
    id: str = ""  # of this or the latest event that had one


class EventReader:
    """Parser of server-sent events; knows nothing of where the bytes come from."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._id = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Return the events that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = [self._line(line.rstrip(b"\r").decode(errors="replace")) for line in lines]
        return [event for event in found if event is not None]

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._finish()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None

    def _finish(self) -> ServerEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return ServerEvent(name or "message", "\n".join(data), self._id) if data else None
