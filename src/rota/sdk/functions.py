"""A function that is a job."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar

from rota.sdk.context import Context, Identity, StepReport
from rota.sdk.errors import NotFound
from rota.sdk.options import JobOptions, document_of
from rota.sdk.parameters import Parameters
from rota.sdk.runs import AsyncRunHandle, RunHandle
from rota.sdk.values import from_plain

if TYPE_CHECKING:
    from rota.sdk.app import App

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MOST_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a run is to be submitted."""

    priority: int | None = None
    at: datetime | str | None = None
    delay: timedelta | None = None
    key: str | None = None


_NO_WISHES = Wishes()


class _When(TypedDict):
    priority: int | None
    at: datetime | str | None
    key: str | None


class JobFunction(Generic[P, R, T]):
    """What `@app.job` makes of a function: P its parameters without the context, R what a call
    returns, T the output of a run.

    Calling it calls the function, here and now; only `submit` makes a run.
    """

    def __init__(
        self,
        app: App,
        function: Callable[..., R],
        options: JobOptions,
        wishes: Wishes = _NO_WISHES,
    ) -> None:
        self.app = app
        self.name = options.get("name", function.__name__)
        self.options = options
        self.parameters = Parameters(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self._function = function
        self._wishes = wishes

    @property
    def function(self) -> str:
        """The name under which workers know it."""
        return f"{self.app.name}.{self.__name__}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.parameters.takes_context:
            return self.fn(None, *args, **kwargs)
        return self.fn(*args, **kwargs)

    @cached_property
    def fn(self) -> Callable[..., R]:
        """The plain function, for unit tests: context and all, for which None will do."""
        function = self._function
        if not self.parameters.takes_context:
            return function

        @wraps(function)
        def with_context(ctx: Context | None, /, *args: Any, **kwargs: Any) -> R:
            return function(ctx or self._local_context(), *args, **kwargs)

        return with_context

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[T]:
        """Make a run with these arguments; returns as soon as the server has stored it."""
        client = self.app.client
        inputs = self.parameters.pack(args, kwargs)
        with self._told_how_to_define_it():
            run = client.trigger(self.name, inputs, **self._when(client.now))
        return RunHandle(run.id, client, self.read_output)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncRunHandle[T]:
        """`submit` for an event loop."""
        client = self.app.async_client
        inputs = self.parameters.pack(args, kwargs)
        with self._told_how_to_define_it():
            run = await client.trigger(self.name, inputs, **self._when(client.now))
        return AsyncRunHandle(run.id, client, self.read_output)

    def submit_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[RunHandle[T]]:
        """One run for each set of arguments, stored in batches, each all or none."""
        wishes = self._wishes
        if wishes != Wishes(key=wishes.key):
            raise TypeError("submit_many takes no priority, at or delay")
        client = self.app.client
        packed = (self.parameters.pack((), each) for each in arguments)
        runs: list[str] = []
        while batch := list(islice(packed, MOST_AT_ONCE)):
            key = f"{wishes.key}/{len(runs)}" if wishes.key else None
            with self._told_how_to_define_it():
                runs += client.trigger_many(self.name, batch, key=key).runs
        return [RunHandle(run, client, self.read_output) for run in runs]

    def with_options(
        self,
        *,
        priority: int | None = None,
        at: datetime | str | None = None,
        delay: timedelta | None = None,
        key: str | None = None,
    ) -> JobFunction[P, R, T]:
        """The same job, submitted otherwise: sooner in the queue, at a time, once per key."""
        if at is not None and delay is not None:
            raise TypeError("give either at or delay")
        given = {"priority": priority, "at": at, "delay": delay, "key": key}
        chosen = {name: value for name, value in given.items() if value is not None}
        wishes = replace(self._wishes, **chosen)  # type: ignore[arg-type]  # names match
        return JobFunction(self.app, self._function, self.options, wishes)

    def document(self) -> dict[str, Any]:
        """The job as an entry of a job file."""
        document: dict[str, Any] = {
            "name": self.name,
            "type": "python",
            "function": self.function,
        }
        if self.__doc__:
            document["description"] = inspect.cleandoc(self.__doc__).splitlines()[0]
        if self.parameters.inputs:
            document["inputs"] = self.parameters.inputs
        return document | document_of(self.options)

    def read_output(self, output: object) -> T:
        """A run's output as the type the function returns."""
        value: T = from_plain(output, self._output_type)
        return value

    @cached_property
    def _output_type(self) -> Any:
        return self.parameters.annotations.get("return", Any)

    @contextmanager
    def _told_how_to_define_it(self) -> Iterator[None]:
        """An app's job that the server does not know was never applied: say how to."""
        try:
            yield
        except NotFound as error:
            if error.code == "job_not_found":
                module = "MODULE" if self.__module__ == "__main__" else self.__module__
                error.hint = f"define it with rota apply --app {module}:app, or with app.apply()"
            raise

    def _when(self, now: Callable[[], datetime]) -> _When:
        wishes = self._wishes
        at = wishes.at if wishes.delay is None else now() + wishes.delay
        return {"priority": wishes.priority, "at": at, "key": wishes.key}

    def _local_context(self) -> Context:
        due_at = datetime.now(UTC)  # noqa: TID251 (called by hand: there is no scheduler to ask)
        return Context(Identity("local", self.name, 1, due_at), _Terminal())


class _Terminal:
    """Hears a function that is called by hand."""

    is_cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Nobody asks for it."""

    def log(self, text: str) -> None:
        sys.stdout.write(text)

    def step_began(self, number: int | None) -> None:
        """Steps are shown by runs only."""

    def step_ended(self, report: StepReport) -> None:
        """Steps are shown by runs only."""
