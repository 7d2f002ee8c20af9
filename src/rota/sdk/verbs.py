"""Verbs of clients, described once for both of them.

A `Verb` is one call of the API. What takes more than one is a flow: a generator without I/O that
yields what it wants next and is sent the result. The clients only differ in how they send,
read and sleep, so each of them drives the same verbs and flows.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

import msgspec

from rota.sdk.errors import RotaApiError
from rota.sdk.exchange import Call

if TYPE_CHECKING:
    from rota.sdk.client import AsyncClient, Client
    from rota.sdk.events import ServerEvent

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H")  # what a flow hands to its caller
H_co = TypeVar("H_co", covariant=True)


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class NextEvent(msgspec.Struct, frozen=True):
    """Request for the next event of a live stream, None at its end.

    One stream is open at a time: asking for an event of another call closes the one before.
    """

    stream: Call[bytes]


class Hand(msgspec.Struct, Generic[H_co], frozen=True):
    """Value for the caller, who may take as long as they like with it."""

    value: H_co


# What a client does for a flow; errors that come of it are thrown into the flow.
Action: TypeAlias = Call[Any] | NextEvent | Pause
Flow: TypeAlias = Generator[Action | Hand[H], Any, T]


def ask(call: Call[T]) -> Flow[Any, T]:
    """Return the answer to a call; within a flow: `yield from ask(call)`."""
    answer: T = yield call
    return answer


def next_event(stream: Call[bytes]) -> Flow[Any, ServerEvent | None]:
    """Return the next event of a stream, None at its end; within a flow."""
    event: ServerEvent | None = yield NextEvent(stream)
    return event


class Course(Generic[H, T]):
    """Flow in progress: what it wants now, and what it returned in the end."""

    result: T

    def __init__(self, flow: Flow[H, T]) -> None:
        self.wants: Action | Hand[H] | None = None  # None: it has ended
        self._flow = flow
        self._advance(functools.partial(next, flow))

    def tell(self, answer: object) -> None:
        """Send the flow the result of what it wanted."""
        self._advance(functools.partial(self._flow.send, answer))

    def fail(self, error: RotaApiError) -> None:
        """Raise an error in the flow, which may handle it."""
        self._advance(functools.partial(self._flow.throw, error))

    def close(self) -> None:
        self._flow.close()

    def _advance(self, step: Callable[[], Action | Hand[H]]) -> None:
        try:
            self.wants = step()
        except StopIteration as end:
            self.wants, self.result = None, end.value


class Verb(Generic[P, T]):
    """Call of the API: a method of clients that sends it and returns the answer.

    On the class it returns the call, unsent: `client.each(Client.list_runs(job="tidy"))`.
    """

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[T]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Callable[P, object]:
        return self._call if client is None else bound(self._call, client.send)


class Waiting(Generic[P, T]):
    """Flow that is waited for: a method that returns the flow's result."""

    def __init__(self, flow: Callable[P, Flow[Any, T]]) -> None:
        self._flow = flow

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Flow[Any, T]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Callable[P, object]:
        return self._flow if client is None else bound(self._flow, client.finish)


class Following(Generic[P, H]):
    """Flow that hands out values as they come: a method that returns an iterator of them."""

    def __init__(self, flow: Callable[P, Flow[H, Any]]) -> None:
        self._flow = flow

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Flow[H, Any]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Generator[H, None, None]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncGenerator[H, None]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Callable[P, object]:
        return self._flow if client is None else bound(self._flow, client.iterate)


def bound(make: Callable[P, T], perform: Callable[[T], object]) -> Callable[P, object]:
    """Build a method that makes a call or a flow of its arguments, and has a client perform it."""

    @functools.wraps(make)
    def method(*args: P.args, **kwargs: P.kwargs) -> object:
        return perform(make(*args, **kwargs))

    return method
