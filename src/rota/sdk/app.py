"""App: a set of functions that are jobs."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from weakref import WeakKeyDictionary

from rota.sdk.context import Context
from rota.sdk.functions import JobFunction
from rota.sdk.options import JobOptions
from rota.sdk.runs import AsyncRunClient, RunClient

if TYPE_CHECKING:
    from rota.api.plans import Plan
    from rota.sdk.cart_drafts import CartDraft, CartOptions
    from rota.sdk.client import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")


class JobDecorator(Protocol):
    """Decorator that makes a job of a function, keeping its types; Rota passes the context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]]
    ) -> JobFunction[P, Coroutine[Any, Any, T], T]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], T]) -> JobFunction[P, T, T]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]]
    ) -> JobFunction[P, Coroutine[Any, Any, T], T]: ...

    @overload
    def __call__(self, function: Callable[P, T]) -> JobFunction[P, T, T]: ...


class App:
    """Functions under one name. Creating an app, and decorating, sends nothing.

    The server and its token are looked up at the first submit, as `Client` does.
    """

    def __init__(self, name: str = "app") -> None:
        self.name = name
        self.jobs: dict[str, JobFunction[..., Any, Any]] = {}  # by the job's name
        self._instead: tuple[RunClient, AsyncRunClient] | None = None  # of the clients below
        self._client: Client | None = None
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient]
        self._async_clients = WeakKeyDictionary()

    @property
    def functions(self) -> dict[str, JobFunction[..., Any, Any]]:
        """Return the functions by the name under which workers know them."""
        return {job.function: job for job in self.jobs.values()}

    @property
    def client(self) -> RunClient:
        if self._instead is not None:
            return self._instead[0]
        if self._client is None:
            from rota.sdk.client import Client

            self._client = Client()
        return self._client

    @property
    def async_client(self) -> AsyncRunClient:
        """Return the client of the running event loop."""
        if self._instead is not None:
            return self._instead[1]
        loop = asyncio.get_running_loop()
        if loop not in self._async_clients:
            from rota.sdk.client import AsyncClient

            self._async_clients[loop] = AsyncClient()
        return self._async_clients[loop]

    def job(self, **options: Unpack[JobOptions]) -> JobDecorator:
        """Make a job of a function; the options are fields of the job file."""
        _refuse_unknown(options, JobOptions.__optional_keys__, "a job")

        def decorate(function: Callable[..., Any]) -> JobFunction[..., Any, Any]:
            return self._add(JobFunction(self, function, options))

        return cast("JobDecorator", decorate)

    def cart(self, name: str, **options: Unpack[CartOptions]) -> CartDraft:
        """Create a cart to fill and submit; the options are fields of a job file's cart."""
        from rota.sdk.cart_drafts import CartDraft, CartOptions

        _refuse_unknown(options, CartOptions.__optional_keys__, "a cart")
        return CartDraft(self, name, options)

    @contextmanager
    def submitting_to(self, client: RunClient, async_client: AsyncRunClient) -> Iterator[None]:
        """Submit to these clients within the block: for tests, or another server than usual."""
        before, self._instead = self._instead, (client, async_client)
        try:
            yield
        finally:
            self._instead = before

    def close(self) -> None:
        """Close the connections that `submit` opened; it opens new ones when needed."""
        if self._client is not None:
            self._client.close()

    async def aclose(self) -> None:
        """Close the connections that `asubmit` opened on this event loop."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def documents(self) -> list[dict[str, Any]]:
        """Return the jobs as entries of a job file."""
        return [job.document() for job in self.jobs.values()]

    def apply(
        self, client: Client | None = None, *, plan: bool = False, prune: bool = False
    ) -> Plan:
        """Define the jobs on the server; with `prune`, remove those this app no longer has."""
        from rota.sdk.client import Client

        if client is None:
            with Client() as own:
                return self.apply(own, plan=plan, prune=prune)
        text = json.dumps({"set": self.name, "jobs": self.documents()})
        return client.apply(text, name=self.name, plan=plan, prune=prune)

    def _add(self, job: JobFunction[..., Any, Any]) -> JobFunction[..., Any, Any]:
        if job.name in self.jobs or job.function in self.functions:
            raise ValueError(f"app {self.name} already has a job {job.name}")
        self.jobs[job.name] = job
        return job


def load_app(reference: str) -> App:
    """Import the app that `MODULE:NAME` means; NAME is `app` unless given."""
    module, _, name = reference.partition(":")
    found = getattr(importlib.import_module(module), name or "app", None)
    if not isinstance(found, App):
        raise TypeError(f"{reference} is not an App, but {type(found).__name__}")
    return found


def _refuse_unknown(options: Iterable[str], known: Collection[str], of: str) -> None:
    for name in set(options) - set(known):
        near = difflib.get_close_matches(name, known, n=1)
        raise TypeError(f'"{name}" is no option of {of}' + (f": {near[0]}?" if near else ""))
