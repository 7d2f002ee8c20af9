"""App: a set of functions that are jobs."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import json
import os
import sys
import traceback
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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
from rota.sdk.executors import Hosted
from rota.sdk.functions import DefinedJob, JobFunction
from rota.sdk.options import DefinedOptions, JobOptions
from rota.sdk.runs import AsyncRunClient, RunClient

if TYPE_CHECKING:
    from rota.api.plans import Plan
    from rota.sdk.cart_drafts import CartDraft, CartOptions
    from rota.sdk.client import AsyncClient, Client

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"  # Rota's own code
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
        self.defined: dict[str, DefinedJob] = {}  # jobs of other types than functions, by name
        self.executors: dict[str, Hosted] = {}  # by type
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

    def executor(self, kind: str) -> Callable[[type[T]], type[T]]:
        """Make a class the executor of a type of jobs: `submit`, `status` and perhaps `cancel`.

        Its worker offers `type: KIND`. See `rota.sdk.executors` for what the methods are given.
        """

        def decorate(made: type[T]) -> type[T]:
            if kind in self.executors:
                raise ValueError(f"app {self.name} already has an executor of type {kind}")
            self.executors[kind] = Hosted(kind, made)
            return made

        return decorate

    def define(self, kind: str, **options: Unpack[DefinedOptions]) -> DefinedJob:
        """Define a job of a type that this app or a plug-in brings; options as in a job file."""
        _refuse_unknown(options, DefinedOptions.__optional_keys__, "a job")
        job = DefinedJob(self, kind, options)
        if job.name in self.jobs or job.name in self.defined:
            raise ValueError(f"app {self.name} already has a job {job.name}")
        self.defined[job.name] = job
        return job

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
        functions = [job.document() for job in self.jobs.values()]
        return functions + [job.document() for job in self.defined.values()]

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
        if {job.name} & {*self.jobs, *self.defined} or job.function in self.functions:
            raise ValueError(f"app {self.name} already has a job {job.name}")
        self.jobs[job.name] = job
        return job


@dataclass(frozen=True, slots=True)
class Served:
    """What a function host serves."""

    functions: Mapping[str, JobFunction[..., Any, Any]]
    executors: Sequence[Hosted]


PLUGIN = "plugin:"  # begins the reference of a plug-in: plugin:TYPE=MODULE:NAME


def load_served(reference: str) -> Served:
    """Import an app, or the executor class of a plug-in."""
    if not reference.startswith(PLUGIN):
        app = load_app(reference)
        return Served(app.functions, tuple(app.executors.values()))
    kind, _, place = reference.removeprefix(PLUGIN).partition("=")
    module, _, name = place.partition(":")
    plugin = getattr(importlib.import_module(module), name)
    return Served({}, (Hosted(kind, plugin.executor),))


class NoSuchApp(TypeError):
    """`MODULE:NAME` does not lead to an app."""


def load_app(reference: str) -> App:
    """Import the app that `MODULE:NAME` means; NAME is `app` unless given."""
    path, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in path.split(".")) or path.endswith(".py"):
        raise NoSuchApp(
            f'"{path}" is not the name of a module: for shop/jobs.py write shop.jobs:app'
        )
    module = importlib.import_module(path)
    found = getattr(module, name or "app", None)
    if isinstance(found, App):
        return found
    if hasattr(module, name or "app"):
        what = "None" if found is None else f"a value of type {type(found).__name__}"
        raise NoSuchApp(f"{reference} is not an App: it is {what}")
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    raise NoSuchApp(
        f'{reference} is not an App: {_short(module.__file__)} has no "{name or "app"}"'
        + (f"; did you mean {path}:{apps[0]}?" if apps else ", nor any other App")
    )


def try_app(reference: str) -> int:
    """Import an app to see whether that works; return 0, 1: its code fails, 2: it is not there."""
    try:
        load_app(reference)
    except BaseException as error:  # noqa: BLE001 (importing runs the user's code)
        sys.stderr.write(f"\n{explain_import(reference, error)}\n")
        return 2 if is_not_there(reference, error) else 1
    return 0


def is_not_there(reference: str, error: BaseException) -> bool:
    """Return whether `load_app` failed because of what it was asked for, not of the code there."""
    if isinstance(error, ModuleNotFoundError):
        module = reference.partition(":")[0]
        return f"{module}.".startswith(f"{error.name}.")
    return isinstance(error, NoSuchApp)


def explain_import(reference: str, error: BaseException) -> str:
    """Return why `load_app` failed, on one line; with file and line if its code did."""
    if isinstance(error, NoSuchApp):
        return str(error)
    place = _failed_at(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = f'there is no module "{error.name}"'
        return missing if is_not_there(reference, error) else f"{place}{missing}"
    if isinstance(error, SyntaxError):
        return f"{_short(error.filename)}:{error.lineno}: {error.msg}"
    return place + traceback.format_exception_only(error)[-1].strip()


def _failed_at(error: BaseException) -> str:
    """Return `FILE:LINE: ` of the innermost line of code that is in the current folder, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    code = [frame for frame in frames if not frame.filename.startswith(("<", _PACKAGE))]
    own = [frame for frame in code if _short(frame.filename) != frame.filename]
    if not (frames_there := own or code):
        return ""
    return f"{_short(frames_there[-1].filename)}:{frames_there[-1].lineno}: "


def _short(file: str | None) -> str:
    """Return a path as from the current folder, if it is in there."""
    return (file or "it").removeprefix(f"{Path.cwd()}{os.sep}")


def _refuse_unknown(options: Iterable[str], known: Collection[str], of: str) -> None:
    for name in set(options) - set(known):
        near = difflib.get_close_matches(name, known, n=1)
        raise TypeError(f'"{name}" is no option of {of}' + (f": {near[0]}?" if near else ""))
