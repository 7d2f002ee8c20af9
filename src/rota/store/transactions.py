"""Transactions of one server: a driver that others may share, and a way to notify others.

Verbs of the port are bound to scripts: `claim = write(claims.claim, Urgency.CLAIM)` is a method
with the parameters of the script, which a driver runs in one transaction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

import structlog

from rota.domain.errors import Unavailable
from rota.ports.queue import Wakes
from rota.store.memory import Memory, RulesCache
from rota.store.script import Driver, Script, Urgency
from rota.store.tx import Tx, WriteScript, concluded

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")
Publish: TypeAlias = Callable[[Wakes], None]


def tell_nobody(_wakes: Wakes) -> None:
    """Notify nobody: whoever waits for something polls."""


class Transactions:
    """Runs scripts through a driver, and publishes what they concern once that is committed."""

    def __init__(
        self, driver: Driver, memory: Memory | None = None, publish: Publish = tell_nobody
    ) -> None:
        self._driver = driver
        self._rules = RulesCache()
        self._memory = memory or Memory()
        self._publish = publish

    def publish_with(self, publish: Publish) -> None:
        """Notify others in this way from now on: a store is opened before its queue."""
        self._publish = publish

    async def write(self, script: WriteScript[T], urgency: Urgency = Urgency.API) -> T:
        """Run a script in a transaction; returns once it is durable and published.

        A caller that is cancelled does not stop it: the driver goes on, and so does its effect on
        others.
        """
        tx: Tx

        def begin(now: int) -> Script[T]:
            nonlocal tx
            tx = Tx(now, self._rules, self._memory)  # a new one for each try
            return concluded(tx, script(tx))

        def committed() -> None:
            self._tell(tx.effects.wakes())

        return await self._driver.write(begin, urgency, committed)

    def _tell(self, wakes: Wakes) -> None:
        try:
            self._publish(wakes)
        except Exception:
            # The transaction is durable: to fail its caller, or others that were committed with
            # it, would be wrong. Whoever is not notified looks by itself.
            log.exception("store.not_published")


def write(
    script: Callable[Concatenate[Tx, P], Script[T]], urgency: Urgency = Urgency.API
) -> Callable[Concatenate[Transactions, P], Coroutine[Any, Any, T]]:
    """A verb that runs a script in a transaction of its own."""

    async def verb(self: Transactions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write(lambda tx: script(tx, *args, **kwargs), urgency)

    return _named(verb, script)


def read(
    script: Callable[P, Script[T]], urgency: Urgency = Urgency.API
) -> Callable[Concatenate[Transactions, P], Coroutine[Any, Any, T]]:
    """A verb that runs a script which only reads."""

    async def verb(self: Transactions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.read(lambda _now: script(*args, **kwargs), urgency)

    return _named(verb, script)


def read_at(
    script: Callable[Concatenate[int, P], Script[T]], urgency: Urgency = Urgency.API
) -> Callable[Concatenate[Transactions, P], Coroutine[Any, Any, T]]:
    """A verb that runs a script which only reads, given the store's time."""

    async def verb(self: Transactions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.read(lambda now: script(now, *args, **kwargs), urgency)

    return _named(verb, script)


def _named(verb: Callable[P, T], script: Callable[..., Any]) -> Callable[P, T]:
    """A verb that shows up under the name of its script, with what that says about itself."""
    verb.__name__, verb.__doc__ = script.__name__, script.__doc__
    return verb


Asked = TypeVar("Asked")
Found = TypeVar("Found")
Id = TypeVar("Id", bound=str)
Answer = TypeVar("Answer")
AnswerAll: TypeAlias = Callable[[Sequence[Asked]], Awaitable[Sequence[Answer | Exception]]]


@dataclass(frozen=True, slots=True)
class _Request(Generic[Asked, Answer]):
    asked: Asked
    future: asyncio.Future[Answer]


class Joining(Generic[Asked, Answer]):
    """Joins calls about the same: who asks while an answer is under way shares the next one.

    Nobody waits for company, and nobody gets an answer that was begun before the question. One who
    does not wait any more changes nothing for the others.
    """

    def __init__(self, answer_all: AnswerAll[Asked, Answer], most: int) -> None:
        self._answer_all = answer_all
        self._most = most  # that go together
        self._waiting: dict[Hashable, deque[_Request[Asked, Answer]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, about: Hashable, asked: Asked) -> Answer:
        """Answer `asked`, by itself or with others that are `about` the same."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if about not in self._waiting:
            self._waiting[about] = deque()
            # It begins when this one waits, and by then finds the request below.
            task = asyncio.create_task(self._serve(about))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._waiting[about].append(_Request(asked, future))
        return await future

    async def close(self) -> None:
        """Wait until everybody has an answer, if only that the store is closed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, about: Hashable) -> None:
        waiting = self._waiting[about]
        try:
            while waiting:
                together = [waiting.popleft() for _ in range(min(len(waiting), self._most))]
                still_there = [each for each in together if not each.future.done()]
                if still_there:
                    await self._answer(still_there)
        finally:
            # Nothing was awaited since it was found empty: no request came in between and is lost.
            del self._waiting[about]
            _leave(waiting)

    async def _answer(self, requests: Sequence[_Request[Asked, Answer]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._answer_all([request.asked for request in requests])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who asked hear of it
            if len(requests) > 1 and not isinstance(error, Unavailable):  # it may be about one only
                await asyncio.gather(*(self._answer([request]) for request in requests))
                return
            answers = [error] * len(requests)
        except BaseException:
            _leave(requests)
            raise
        _tell(requests, answers)


def _tell(
    requests: Sequence[_Request[Asked, Answer]], answers: Sequence[Answer | Exception]
) -> None:
    for request, answer in zip(requests, answers, strict=True):
        if request.future.done():
            continue
        if isinstance(answer, Exception):
            request.future.set_exception(answer)
        else:
            request.future.set_result(answer)


def _leave(requests: Iterable[_Request[Asked, Answer]]) -> None:
    """Cancel requests that nobody is going to answer."""
    for request in requests:
        request.future.cancel()


def together(wanted: Iterable[Iterable[Id]]) -> list[Id]:
    """All that some of these callers want, each once."""
    return sorted({each for some in wanted for each in some})


def of_each(found: Mapping[str, Found], wanted: Iterable[Iterable[str]]) -> list[list[Found]]:
    """To each what it wants, in the order in which all was found."""
    places = {key: place for place, key in enumerate(found)}
    inside = [sorted(set(some) & places.keys(), key=places.__getitem__) for some in wanted]
    return [[found[key] for key in some] for some in inside]
