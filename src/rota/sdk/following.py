"""Following a run until nothing more happens by itself, whatever becomes of the connection.

Each round reads the live stream; when that breaks off or was never there, it asks once for what
was missed and whether the run has ended, pauses, and begins the next round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from rota.sdk import calls
from rota.sdk.answers import Answer, LogWindow, Run, RunDetail
from rota.sdk.errors import RotaApiError, Unavailable, Unreachable
from rota.sdk.exchange import Call, read_as
from rota.sdk.sse import ServerEvent

PATIENCE_SECONDS = 60.0  # how long a server may be away before following gives up
STREAM_SILENCE_SECONDS = 30.0  # a live stream says something at least this often
AWAY = (Unreachable, Unavailable)

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class _Began(Answer, frozen=True, kw_only=True):
    attempt: int


class Pauses:
    """How long to wait before asking again: longer each time nothing came of it."""

    def __init__(self) -> None:
        self._seconds = _FIRST_PAUSE_SECONDS

    def restart(self) -> None:
        self._seconds = _FIRST_PAUSE_SECONDS

    def next_seconds(self) -> float:
        seconds, self._seconds = self._seconds, min(self._seconds * 1.5, _LONGEST_PAUSE_SECONDS)
        return seconds


class Outage:
    """How long a server has been away: borne with, but not for ever."""

    def __init__(self) -> None:
        self._since: float | None = None

    def end(self) -> None:
        self._since = None

    def bear(self, error: RotaApiError) -> None:
        """Raise the error once the server has been away for too long."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > PATIENCE_SECONDS:
            raise error


class Following:
    """How far a run's output has been read, and whether the run has ended."""

    def __init__(self, run: str, attempt: int | None, from_line: int) -> None:
        self.end: Run | None = None  # the run when nothing more was to come
        self.pauses = Pauses()
        self._run = run
        self._attempt = attempt
        self._next_line = from_line
        self._outage = Outage()

    def stream_call(self) -> Call[bytes]:
        return calls.log_stream(self._run, attempt=self._attempt, from_line=self._next_line)

    def run_call(self) -> Call[RunDetail]:
        return calls.get_run(self._run)

    def window_call(self) -> Call[LogWindow]:
        return calls.get_log(self._run, attempt=self._attempt, first_line=self._next_line)

    def take_event(self, event: ServerEvent) -> Iterator[LogWindow]:
        """The new lines an event of the stream brings."""
        match event.name:
            case "lines":
                new = self.take_window(read_as(LogWindow, event.data))
                if new is not None:
                    yield new
            case "attempt":
                self._attempt, self._next_line = read_as(_Began, event.data).attempt, 0
            case "end":
                self.end = read_as(Run, event.data)
            case _:
                pass  # what a newer server says besides

    def take_window(self, window: LogWindow) -> LogWindow | None:
        """The window if it has lines that were not there before."""
        self._outage.end()
        if self._attempt is not None and window.attempt > self._attempt:
            self._next_line = 0
        known = self._next_line
        self._attempt = window.attempt or self._attempt
        self._next_line = max(known, window.next_line)
        if not window.lines or window.next_line <= known:
            return None
        self.pauses.restart()
        return window

    def take_run(self, run: RunDetail) -> None:
        """Note the end, or the next attempt; all output there was before has been taken."""
        self._outage.end()
        if self._attempt is not None and run.attempt > self._attempt:
            self._attempt, self._next_line = self._attempt + 1, 0
        elif run.is_settled:
            self.end = run

    def take_outage(self, error: RotaApiError) -> None:
        """Bear with a server that is away, but not for ever."""
        self._outage.bear(error)
