"""The typed clients: they send the calls that the modules of the nouns describe.

    with Client() as client:
        run = client.trigger("nightly-backup", {"target": "orders"})
        for window in client.follow_log(run.id): ...
        print(client.wait(run.id).state)

Every list method gives one page; `each` walks all of them: `client.each(Client.list_runs())`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rota.api.answers import Page
from rota.sdk.calendars import CalendarVerbs
from rota.sdk.carts import CartVerbs
from rota.sdk.errors import RotaApiError
from rota.sdk.events import EventReader, EventVerbs, ServerEvent
from rota.sdk.exchange import Call, Reply, read, request_for
from rota.sdk.external import AsyncExternalRun, ExternalRun, ExternalVerbs
from rota.sdk.files import FileVerbs
from rota.sdk.following import FollowingVerbs
from rota.sdk.forecasts import ForecastVerbs
from rota.sdk.jobs import JobVerbs
from rota.sdk.limits import LimitVerbs
from rota.sdk.principals import PrincipalVerbs
from rota.sdk.projects import ProjectVerbs
from rota.sdk.runs import OutputVerbs, RunVerbs
from rota.sdk.server import find_server
from rota.sdk.tokens import TokenVerbs
from rota.sdk.transport import Transport
from rota.sdk.verbs import Action, Course, Flow, Hand, NextEvent, Pause
from rota.sdk.watching import WatchingVerbs
from rota.sdk.workers import WorkerVerbs

if TYPE_CHECKING:
    from rota.sdk.async_transport import AsyncTransport

T = TypeVar("T")
H = TypeVar("H")

TIMEOUT_SECONDS = 30.0
STREAM_SILENCE_SECONDS = 30.0  # a live stream says something at least this often


class Verbs(
    CalendarVerbs,
    CartVerbs,
    EventVerbs,
    ExternalVerbs,
    FileVerbs,
    FollowingVerbs,
    ForecastVerbs,
    JobVerbs,
    LimitVerbs,
    OutputVerbs,
    PrincipalVerbs,
    ProjectVerbs,
    RunVerbs,
    TokenVerbs,
    WatchingVerbs,
    WorkerVerbs,
):
    """Verbs of both clients; a new verb is written in the module of its noun, and only there."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        project: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.server = find_server(url, token)
        self.project = project
        self._timeout_seconds = timeout_seconds

    def now(self) -> datetime:
        """Return the time of this machine's clock; the server's decides what is due."""
        return datetime.now(UTC)  # noqa: TID251 (a client has no clock but its own)

    def address_of(self, run: str) -> str:
        """Return the address of the run's page."""
        return f"{self.server.url}/runs/{run}"

    def address_of_cart(self, cart: str) -> str:
        """Return the address of the cart's page."""
        return f"{self.server.url}/carts/{cart}"


class Client(Verbs):
    """Client of a Rota server; finds it and the token by itself where it can.

    That is: the arguments, else ROTA_URL and ROTA_TOKEN, else rota.toml, else what `rota up` noted
    in ROTA_HOME. `Denied` if the token must not go to that server. Threads may share one.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        project: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(url, token, project=project, timeout_seconds=timeout_seconds)
        # At once, not at the first use: threads that share a client share its connections.
        self._transport = Transport(self.server, timeout_seconds)

    def send(self, call: Call[T]) -> T:
        return read(call, self.exchange(call))

    def exchange(self, call: Call[T]) -> Reply:
        """Return the raw answer, also of an error; `read(call, reply)` decodes it."""
        return self._transport.exchange(request_for(call, self.server, self.project))

    def stream(
        self, call: Call[bytes], *, silence_seconds: float = TIMEOUT_SECONDS
    ) -> Generator[bytes, None, None]:
        """Yield the body of an answer as it comes."""
        request = request_for(call, self.server, self.project)
        return self._transport.stream(request, silence_seconds)

    def each(self, call: Call[Page[T]]) -> Iterator[T]:
        """Yield all entries of a list, page by page."""
        while True:
            page = self.send(call)
            yield from page.items
            if page.next_cursor is None:
                return
            call = call.with_query(cursor=page.next_cursor)

    def external(self, run: str) -> ExternalRun:
        """Return a run of type `external`, to report how it stands."""
        return ExternalRun(self, run)

    def finish(self, flow: Flow[Any, T]) -> T:
        """Run a flow to its end; return its result."""
        course = Course(flow)
        for _ in self._drive(course):
            pass
        return course.result

    def iterate(self, flow: Flow[H, Any]) -> Generator[H, None, None]:
        """Yield what a flow hands out, as it comes."""
        return self._drive(Course(flow))

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _drive(self, course: Course[H, Any]) -> Generator[H, None, None]:
        with closing(course), closing(_Stream(self)) as stream:
            while (wanted := course.wants) is not None:
                if isinstance(wanted, Hand):
                    yield wanted.value
                    course.tell(None)
                    continue
                try:
                    answer = self._perform(wanted, stream)
                except RotaApiError as error:
                    course.fail(error)
                else:
                    course.tell(answer)

    def _perform(self, action: Action, stream: _Stream) -> object:
        match action:
            case Call():
                return self.send(action)
            case NextEvent(call):
                return stream.next_event(call)
            case Pause(seconds):
                pause(seconds)
                return None


class AsyncClient(Verbs):
    """`Client` for an event loop: its methods are awaited, its iterators asynchronous."""

    async def send(self, call: Call[T]) -> T:
        return read(call, await self.exchange(call))

    async def exchange(self, call: Call[T]) -> Reply:
        """Return the raw answer, also of an error; `read(call, reply)` decodes it."""
        return await self._transport.exchange(request_for(call, self.server, self.project))

    def stream(
        self, call: Call[bytes], *, silence_seconds: float = TIMEOUT_SECONDS
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body of an answer as it comes."""
        request = request_for(call, self.server, self.project)
        return self._transport.stream(request, silence_seconds)

    async def each(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        """Yield all entries of a list, page by page."""
        while True:
            page = await self.send(call)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            call = call.with_query(cursor=page.next_cursor)

    def external(self, run: str) -> AsyncExternalRun:
        """Return a run of type `external`, to report how it stands."""
        return AsyncExternalRun(self, run)

    async def finish(self, flow: Flow[Any, T]) -> T:
        """Run a flow to its end; return its result."""
        course = Course(flow)
        async with aclosing(self._drive(course)) as handed:
            async for _ in handed:
                pass
        return course.result

    def iterate(self, flow: Flow[H, Any]) -> AsyncGenerator[H, None]:
        """Yield what a flow hands out, as it comes."""
        return self._drive(Course(flow))

    async def close(self) -> None:
        if "_transport" in self.__dict__:
            await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @functools.cached_property
    def _transport(self) -> AsyncTransport:
        from rota.sdk.async_transport import AsyncTransport  # its HTTP client is slow to import

        return AsyncTransport(self.server, self._timeout_seconds)

    async def _drive(self, course: Course[H, Any]) -> AsyncGenerator[H, None]:
        async with aclosing(_AsyncStream(self)) as stream:
            with closing(course):
                while (wanted := course.wants) is not None:
                    if isinstance(wanted, Hand):
                        yield wanted.value
                        course.tell(None)
                        continue
                    try:
                        answer = await self._perform(wanted, stream)
                    except RotaApiError as error:
                        course.fail(error)
                    else:
                        course.tell(answer)

    async def _perform(self, action: Action, stream: _AsyncStream) -> object:
        match action:
            case Call():
                return await self.send(action)
            case NextEvent(call):
                return await stream.next_event(call)
            case Pause(seconds):
                await async_pause(seconds)
                return None


class _Stream:
    """Live stream that a flow reads: opened for its first event, closed by another call's."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._call: Call[bytes] | None = None
        self._events: Generator[ServerEvent, None, None] | None = None

    def next_event(self, call: Call[bytes]) -> ServerEvent | None:
        if self._events is None or call is not self._call:
            self.close()
            self._call, self._events = call, self._read(call)
        return next(self._events, None)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()

    def _read(self, call: Call[bytes]) -> Generator[ServerEvent, None, None]:
        reader = EventReader()
        with closing(self._client.stream(call, silence_seconds=STREAM_SILENCE_SECONDS)) as pieces:
            for data in pieces:
                yield from reader.feed(data)


class _AsyncStream:
    """Live stream that a flow reads, for an event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._call: Call[bytes] | None = None
        self._events: AsyncGenerator[ServerEvent, None] | None = None

    async def next_event(self, call: Call[bytes]) -> ServerEvent | None:
        if self._events is None or call is not self._call:
            await self.aclose()
            self._call, self._events = call, self._read(call)
        return await anext(self._events, None)

    async def aclose(self) -> None:
        if self._events is not None:
            await self._events.aclose()

    async def _read(self, call: Call[bytes]) -> AsyncGenerator[ServerEvent, None]:
        reader = EventReader()
        stream = self._client.stream(call, silence_seconds=STREAM_SILENCE_SECONDS)
        async with aclosing(stream) as pieces:
            async for data in pieces:
                for event in reader.feed(data):
                    yield event


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


async def async_pause(seconds: float) -> None:
    import asyncio  # here, because programs without an event loop should not wait for it

    await asyncio.sleep(seconds)  # noqa: TID251 (a client has no clock but its own)
