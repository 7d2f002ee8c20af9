"""Waiting for runs and carts, and following logs and events; `watching` has the rest.

Each flow is written once, without I/O (see `verbs`), and survives a server that is away for a
while: it asks again, and goes on where it broke off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar

from rota.api.answers import Answer
from rota.api.carts import CartDetail
from rota.api.events import Event
from rota.api.output import LogPage, LogWindow
from rota.api.runs import Run, RunDetail
from rota.sdk.carts import get_cart
from rota.sdk.errors import NotFound, RotaApiError, Unavailable, Unreachable
from rota.sdk.events import ServerEvent, event_stream
from rota.sdk.exchange import Call, read_as
from rota.sdk.runs import get_log, get_log_page, get_run, log_stream
from rota.sdk.verbs import Flow, Following, Hand, Pause, Waiting, ask, next_event

PATIENCE_SECONDS = 60.0  # how long a server may be away before following gives up
AWAY = (Unreachable, Unavailable)

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class Settling(Protocol):
    """Something that can be polled until nothing more happens to it by itself."""

    @property
    def state(self) -> str: ...

    @property
    def is_settled(self) -> bool: ...


S = TypeVar("S", bound=Settling)


def wait(run: str, timeout_seconds: float | None = None) -> Flow[RunDetail, RunDetail]:
    """Wait until nothing more happens to the run by itself: it is final, or UNKNOWN.

    Retries while the server is away for a while. A `TimeoutError` leaves the run going.
    """

    def position(found: RunDetail) -> object:
        return found.state, found.attempt

    return (yield from _looks(get_run(run), f"run {run}", timeout_seconds, position))


def wait_for_cart(cart: str, timeout_seconds: float | None = None) -> Flow[CartDetail, CartDetail]:
    """Wait until nothing more happens to the cart by itself: it is final, or PAUSED.

    Retries while the server is away for a while, and polls less and less often. A `TimeoutError`
    leaves the cart going.
    """

    def position(_: CartDetail) -> object:
        return None

    return (yield from _looks(get_cart(cart), f"cart {cart}", timeout_seconds, position))


def read_log(
    run: str, *, attempt: int | None = None, first_line: int | None = None, last: int | None = None
) -> Flow[LogPage, None]:
    """Yield what has arrived of the output, about a megabyte at a time.

    It is that of the latest attempt unless one is named, from a line on or from `last` lines
    before the end.
    """
    page = yield from ask(get_log_page(run, attempt=attempt, first_line=first_line, last=last))
    yield Hand(page)
    while page.blocks and page.next_line < page.total_lines:
        call = get_log_page(run, attempt=page.attempt, first_line=page.next_line)
        page = yield from ask(call)
        yield Hand(page)


def follow_log(
    run: str, *, attempt: int | None = None, from_line: int = 0
) -> Flow[LogWindow | Run, None]:
    """Yield output as it comes, from the latest or a named attempt on; the ended run comes last.

    Ends when the run does, even if the live stream is lost.
    """
    log = Log(run, attempt, from_line)
    # What is stored comes by pages: the live stream has a text for each line, which takes longer.
    # An attempt that was not made yet has none, and the stream waits for it.
    with suppress(*AWAY, NotFound):
        yield from _read_stored(log)
    while True:
        with suppress(*AWAY):
            yield from _read_stream(log)
        # The stream broke off or was never there: ask once for what was missed.
        if log.end is None:
            yield from _catch_up(log)
        if log.end is not None:
            yield Hand(log.end)
            return
        yield Pause(log.pauses.next_seconds())


def follow_events(*, after: int | str | None = None) -> Flow[Event, None]:
    """Yield events as they come, for ever; resumes by itself where it broke off."""
    pauses = Pauses()
    while True:
        with suppress(*AWAY):
            stream = event_stream(after=after)
            while (received := (yield from next_event(stream))) is not None:
                event = read_as(Event, received.data)
                after = event.id
                pauses.restart()
                yield Hand(event)
        yield Pause(pauses.next_seconds())


class FollowingVerbs:
    follow_events = Following(follow_events)
    follow_log = Following(follow_log)
    read_log = Following(read_log)
    wait = Waiting(wait)
    wait_for_cart = Waiting(wait_for_cart)


class Pauses:
    """Back-off between polls: longer each time nothing came of it."""

    def __init__(self) -> None:
        self._seconds = _FIRST_PAUSE_SECONDS

    def restart(self) -> None:
        self._seconds = _FIRST_PAUSE_SECONDS

    def next_seconds(self) -> float:
        seconds, self._seconds = self._seconds, min(self._seconds * 1.5, _LONGEST_PAUSE_SECONDS)
        return seconds


class Outage:
    """Time that a server has been away: retried, but not for ever."""

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


class Deadline:
    """Deadline of following; None: never."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def check(self, what: str) -> None:
        """Raise `TimeoutError` once the deadline has passed."""
        if self.cut(1.0) <= 0:
            raise TimeoutError(what)

    def cut(self, seconds: float) -> float:
        """Limit a pause to the time left; 0 or less once the deadline has passed."""
        return seconds if self._end is None else min(seconds, self._end - time.monotonic())


def _looks(
    call: Call[S],
    subject: str,
    timeout_seconds: float | None,
    position: Callable[[S], object],
) -> Flow[S, S]:
    """Poll until settled: again soon after its position changed, less and less often if not."""
    # Asked, not streamed: a stream is a connection that is kept for as long as somebody waits, and
    # programs wait for many. That of a run makes its worker tell all that happens, too.
    deadline, pauses, outage = Deadline(timeout_seconds), Pauses(), Outage()
    found: S | None = None
    while True:
        try:
            before, found = found, (yield from ask(call))
        except AWAY as error:
            outage.bear(error)
        else:
            outage.end()
            yield Hand(found)
            if found.is_settled:
                return found
            if before is not None and position(found) != position(before):
                pauses.restart()
        seconds = deadline.cut(pauses.next_seconds())
        if seconds <= 0:
            raise TimeoutError(f"{subject} is still {found.state if found else 'going'}")
        yield Pause(seconds)


class _Began(Answer, frozen=True, kw_only=True):
    attempt: int


class Log:
    """Position up to which a run's output was read, and whether the run has ended."""

    def __init__(self, run: str, attempt: int | None, from_line: int) -> None:
        self.end: Run | None = None  # the run when nothing more was to come
        self.pauses = Pauses()
        self.outage = Outage()
        self._run = run
        self._attempt = attempt
        self._next_line = from_line

    def stream_call(self) -> Call[bytes]:
        return log_stream(self._run, attempt=self._attempt, from_line=self._next_line)

    def run_call(self) -> Call[RunDetail]:
        return get_run(self._run)

    def page_call(self) -> Call[LogPage]:
        return get_log_page(self._run, attempt=self._attempt, first_line=self._next_line)

    def window_call(self) -> Call[LogWindow]:
        return get_log(self._run, attempt=self._attempt, first_line=self._next_line)

    def take_event(self, event: ServerEvent) -> Iterator[LogWindow]:
        """Yield the new lines that an event of the stream brings."""
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
        """Return the window if it has lines that are new."""
        self.outage.end()
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
        """Record the end, or the next attempt; all output before it has been taken."""
        self.outage.end()
        if self._attempt is not None and run.attempt > self._attempt:
            self._attempt, self._next_line = self._attempt + 1, 0
        elif run.is_settled:
            self.end = run


def _read_stored(log: Log) -> Flow[LogWindow, None]:
    while True:
        page = yield from ask(log.page_call())
        for window in page.windows():
            new = log.take_window(window)
            if new is not None:
                yield Hand(new)
        if not page.blocks or page.next_line >= page.total_lines:
            return


def _read_stream(log: Log) -> Flow[LogWindow, None]:
    stream = log.stream_call()
    while log.end is None and (event := (yield from next_event(stream))) is not None:
        for window in log.take_event(event):
            yield Hand(window)


def _catch_up(log: Log) -> Flow[LogWindow, None]:
    try:
        # The run first: output that comes after this answer belongs to the next round.
        run = yield from ask(log.run_call())
        while run.attempt:
            new = log.take_window((yield from ask(log.window_call())))
            if new is None:
                break
            yield Hand(new)
        log.take_run(run)
    except AWAY as error:
        log.outage.bear(error)
