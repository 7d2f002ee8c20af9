"""Server-sent events, read line by line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: str


class EventReader:
    """Puts events together; knows nothing of where the bytes come from."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that these bytes complete."""
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
        return None

    def _finish(self) -> ServerEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return ServerEvent(name or "message", "\n".join(data)) if data else None
