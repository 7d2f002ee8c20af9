"""What one server has of a store: a driver that others may share, and a way to notify others.

Verbs of the port are bound to scripts: `claim = write(claims.claim, Urgency.CLAIM)` is a method
with the parameters of the script, which a driver runs in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import structlog

from rota.ports.queue import Wakes
from rota.store.drivers import Driver, Urgency
from rota.store.memory import Memory, RulesBook
from rota.store.script import Script
from rota.store.tx import Tx, WriteScript, concluded

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")
Publish: TypeAlias = Callable[[Wakes], None]


def tell_nobody(_wakes: Wakes) -> None:
    """Notify nobody: whoever waits for something polls."""


class Handle:
    """Runs scripts through a driver, and publishes what they concern once that is committed."""

    def __init__(
        self, driver: Driver, memory: Memory | None = None, publish: Publish = tell_nobody
    ) -> None:
        self._driver = driver
        self._rules = RulesBook()
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
) -> Callable[Concatenate[Handle, P], Coroutine[Any, Any, T]]:
    """A verb that runs a script in a transaction of its own."""

    async def verb(self: Handle, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write(lambda tx: script(tx, *args, **kwargs), urgency)

    return _named(verb, script)


def read(
    script: Callable[P, Script[T]], urgency: Urgency = Urgency.API
) -> Callable[Concatenate[Handle, P], Coroutine[Any, Any, T]]:
    """A verb that runs a script which only reads."""

    async def verb(self: Handle, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.read(lambda _now: script(*args, **kwargs), urgency)

    return _named(verb, script)


def read_at(
    script: Callable[Concatenate[int, P], Script[T]], urgency: Urgency = Urgency.API
) -> Callable[Concatenate[Handle, P], Coroutine[Any, Any, T]]:
    """A verb that runs a script which only reads, given the store's time."""

    async def verb(self: Handle, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.read(lambda now: script(now, *args, **kwargs), urgency)

    return _named(verb, script)


def _named(verb: Callable[P, T], script: Callable[..., Any]) -> Callable[P, T]:
    """A verb that shows up under the name of its script, with what that says about itself."""
    verb.__name__, verb.__doc__ = script.__name__, script.__doc__
    return verb
