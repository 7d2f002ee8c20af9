"""Functions as jobs: what `@app.job` makes of a function, and its parameters as a job's inputs.

`Parameters` converts arguments to inputs and back. A parameter annotated `str`, `int`, `float` or
`bool` is an input of its own, so that people can set it on the command line. All others are sent
together in the input `arguments`, as the text of a JSON object, as inputs of a job are single
values. `JobFunction` is called like the function itself, which runs it here; only `submit` and its
kin make runs.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar

from rota.sdk.context import Context, Identity, StepReport
from rota.sdk.errors import NotFound
from rota.sdk.exchange import from_json, from_plain, to_json
from rota.sdk.options import DefinedOptions, JobOptions, document_of
from rota.sdk.runs import AsyncRunHandle, RunHandle

TOGETHER = "arguments"  # the input that carries what is not a single value

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameters:
    """Parameters of a function beside its context."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0])
        own = parameters[1:] if self.takes_context else parameters
        for parameter in own:
            if parameter.kind not in _NAMED:
                raise TypeError(
                    f"{function.__name__}: a job's parameters have names, {parameter} has not"
                )
        self._signature = inspect.Signature(own)

    @cached_property
    def inputs(self) -> dict[str, dict[str, Any]]:
        """Return the inputs as a job file declares them."""
        declared = {name: self._declared(name) for name in sorted(self._singles, key=self._order)}
        if self._grouped:
            names = ", ".join(sorted(self._grouped, key=self._order))
            help_text = f"A JSON object with: {names}"
            declared[TOGETHER] = {"type": "string", "default": "{}", "help": help_text}
        return declared

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Convert arguments to inputs; raise TypeError if they do not fit the function."""
        given = self._signature.bind(*args, **kwargs).arguments
        inputs = {name: value for name, value in given.items() if name in self._singles}
        rest = {name: value for name, value in given.items() if name in self._grouped}
        if rest:
            inputs[TOGETHER] = to_json(rest).decode()
        return inputs

    def unpack(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a run's inputs to keyword arguments."""
        if not self._grouped:
            return dict(inputs)
        arguments = {name: value for name, value in inputs.items() if name != TOGETHER}
        for name, value in from_json(inputs.get(TOGETHER, "{}")).items():
            arguments[name] = from_plain(value, self.annotations.get(name, Any))
        return arguments

    @cached_property
    def annotations(self) -> dict[str, Any]:
        """Return the types of parameters and `return`, as far as they are known at run time."""
        # Evaluated late, when everything in the function's module has been defined.
        try:
            return typing.get_type_hints(self._function)
        except NameError:
            raw = self._function.__annotations__
            return {name: Any if isinstance(hint, str) else hint for name, hint in raw.items()}

    @cached_property
    def _singles(self) -> frozenset[str]:
        return frozenset(filter(self._is_single, self._signature.parameters))

    @cached_property
    def _grouped(self) -> frozenset[str]:
        grouped = frozenset(self._signature.parameters) - self._singles
        if grouped and TOGETHER in self._signature.parameters:
            raise TypeError(f'{self._function.__name__}: the name "{TOGETHER}" is taken')
        return grouped

    def _is_single(self, name: str) -> bool:
        annotation = self.annotations.get(name)
        default = self._signature.parameters[name].default
        is_plain = default is inspect.Parameter.empty or type(default) is annotation
        return annotation in _TYPES and is_plain

    def _declared(self, name: str) -> dict[str, Any]:
        default = self._signature.parameters[name].default
        declared: dict[str, Any] = {"type": _TYPES[self.annotations[name]]}
        return declared if default is inspect.Parameter.empty else declared | {"default": default}

    def _order(self, name: str) -> int:
        return list(self._signature.parameters).index(name)


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = annotation.strip("\"'").rsplit(".", 1)[-1]
    return parameter.name == "ctx" or annotation in (Context, Context.__name__)


if TYPE_CHECKING:
    from rota.sdk.app import App

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MOST_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Wishes:
    """Options with which a run is submitted."""

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
    """Result of `@app.job`: P are the function's parameters without the context, R what a call
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
        """Return the name under which workers know it."""
        return f"{self.app.name}.{self.__name__}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.parameters.takes_context:
            return self.fn(None, *args, **kwargs)
        return self.fn(*args, **kwargs)

    @cached_property
    def fn(self) -> Callable[..., R]:
        """Return the plain function, for unit tests: with its context, for which None will do."""
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
        with self._hint_to_apply():
            run = client.trigger(self.name, inputs, **self._when(client.now))
        return RunHandle(run.id, client, self.read_output)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncRunHandle[T]:
        """Make a run with these arguments, from an event loop."""
        client = self.app.async_client
        inputs = self.parameters.pack(args, kwargs)
        with self._hint_to_apply():
            run = await client.trigger(self.name, inputs, **self._when(client.now))
        return AsyncRunHandle(run.id, client, self.read_output)

    def submit_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[RunHandle[T]]:
        """Make one run for each set of arguments, stored in batches, each all or none."""
        wishes = self._wishes
        if wishes != Wishes(key=wishes.key):
            raise TypeError("submit_many takes no priority, at or delay")
        client = self.app.client
        packed = (self.parameters.pack((), each) for each in arguments)
        runs: list[str] = []
        while batch := list(islice(packed, MOST_AT_ONCE)):
            key = f"{wishes.key}/{len(runs)}" if wishes.key else None
            with self._hint_to_apply():
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
        """Return the job with other options: another priority, at a time, once per key."""
        if at is not None and delay is not None:
            raise TypeError("give either at or delay")
        given = {"priority": priority, "at": at, "delay": delay, "key": key}
        chosen = {name: value for name, value in given.items() if value is not None}
        wishes = replace(self._wishes, **chosen)  # type: ignore[arg-type]  # names match
        return JobFunction(self.app, self._function, self.options, wishes)

    def document(self) -> dict[str, Any]:
        """Return the job as an entry of a job file."""
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
        """Convert a run's output to the type that the function returns."""
        value: T = from_plain(output, self._output_type)
        return value

    @cached_property
    def _output_type(self) -> Any:
        return self.parameters.annotations.get("return", Any)

    @contextmanager
    def _hint_to_apply(self) -> Iterator[None]:
        """Add a hint to errors about an unknown job: an app has to be applied first."""
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


class DefinedJob:
    """Job of a type that an executor class or a plug-in does; only `submit` makes runs."""

    def __init__(self, app: App, kind: str, options: DefinedOptions) -> None:
        if "name" not in options:
            raise TypeError(f"a job of type {kind} needs a name")
        self.app = app
        self.kind = kind
        self.name = options["name"]
        self.options = options

    def submit(self, **inputs: Any) -> RunHandle[Any]:
        """Make a run with these inputs; returns as soon as the server has stored it."""
        run = self.app.client.trigger(self.name, inputs)
        return RunHandle(run.id, self.app.client, _as_it_is)

    async def asubmit(self, **inputs: Any) -> AsyncRunHandle[Any]:
        """Make a run with these inputs, from an event loop."""
        client = self.app.async_client
        run = await client.trigger(self.name, inputs)
        return AsyncRunHandle(run.id, client, _as_it_is)

    def document(self) -> dict[str, Any]:
        """Return the job as an entry of a job file."""
        return {"name": self.name, "type": self.kind} | document_of(self.options)


def _as_it_is(output: object) -> Any:
    return output


class _Terminal:
    """Reporter for a function that is called by hand."""

    is_cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Ignore progress."""

    def log(self, text: str) -> None:
        sys.stdout.write(text)

    def step_began(self, number: int, name: str) -> None:
        """Ignore steps: only runs show them."""

    def step_ended(self, number: int, report: StepReport, outer: int | None) -> None:
        """Ignore steps: only runs show them."""
