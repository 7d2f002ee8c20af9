"""Executor classes: how another system is spoken to that does the runs of a type of jobs.

    @app.executor("ticket")
    class Ticket:
        def submit(self, run): return tracker.create(run.inputs["title"])
        def status(self, ticket): return "completed" if tracker.is_done(ticket) else "processing"
        def cancel(self, ticket): tracker.close(ticket)

A class, not a function: the work goes on elsewhere while nothing waits here. Its methods may be
async. They are called in a function host, each call as a function of its own; what they print is
output of the run. When, how often and with what is the worker's to decide.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rota.sdk.exchange import to_json, to_plain
from rota.sdk.host.wire import HostedType

if TYPE_CHECKING:
    from rota.sdk.functions import JobFunction

EVERY_SECONDS = 10.0
PATIENCE_SECONDS = 300.0
CALL_SECONDS = 60.0
VERBS = ("submit", "status", "cancel")

_TYPE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_OWN_TYPES = ("shell", "python", "container", "http", "external")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST = 0.01  # seconds between two looks
_LONGEST = 86_400.0
_LARGEST_OUTPUT = 1_000_000  # bytes, with what else a status has within the 1 MiB of a result

C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """Run that another system is to do."""

    id: str  # the idempotency key: the same in all attempts at the run
    job: str
    project: str
    attempt: int
    due_at: datetime
    inputs: Mapping[str, Any] = field(default_factory=dict)  # those of the run, defaults filled in
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the job


@dataclass(frozen=True, slots=True)
class Status:
    """How the work stands; where there is no more to say, its first word will do.

    `output` is the result of work that is completed; `message` says why it failed, or how far it
    is.
    """

    state: Literal["processing", "completed", "failed"]
    message: str = ""
    progress: float | None = None  # None: it is not known
    total: float | None = 1.0  # of the progress; None: nobody knows
    output: Any = None


class NotSubmitted(Exception):
    """Raised by `submit` to say that nothing was begun: trying again does no harm.

    After any other error nobody knows, and a run that must not be done twice becomes UNKNOWN.
    """


class Hosted:
    """Executor class under the name of its type, as a function host has it."""

    def __init__(self, kind: str, made: type) -> None:
        _check(kind, made)
        self.kind = kind
        self._made = made
        self._lock = threading.Lock()
        self._object: Any = None

    def described(self) -> HostedType:
        """Return what a worker has to know of it."""
        made = self._made
        schema = getattr(made, "schema", None)
        return HostedType(
            self.kind,
            float(getattr(made, "every", EVERY_SECONDS)),
            float(getattr(made, "patience", PATIENCE_SECONDS)),
            float(getattr(made, "call_timeout", CALL_SECONDS)),
            callable(getattr(made, "cancel", None)),
            json.dumps({} if schema is None else schema),
        )

    def functions(self) -> dict[str, JobFunction[..., Any, Any]]:
        """Return its methods as functions, by the names under which its worker calls them."""
        from rota.sdk.app import App
        from rota.sdk.functions import JobFunction

        verbs = [verb for verb in VERBS if callable(getattr(self._made, verb, None))]
        app = App(self.kind)
        return {
            function_of(self.kind, verb): JobFunction(app, self._caller(verb), {"name": verb})
            for verb in verbs
        }

    def instance(self) -> Any:
        """Return the one object of the class, made at the first call."""
        with self._lock:
            if self._object is None:
                self._object = self._made()
            return self._object

    def _caller(self, verb: str) -> Callable[[str], Any]:
        """Return a function that calls the method with what the worker sends."""
        if inspect.iscoroutinefunction(getattr(self._made, verb)):

            async def call_later(call: str) -> dict[str, Any]:
                try:
                    return _told(await getattr(self.instance(), verb)(_argument(call)))
                except NotSubmitted as error:
                    return {"not_submitted": str(error)}

            return call_later

        def call_now(call: str) -> dict[str, Any]:
            try:
                return _told(getattr(self.instance(), verb)(_argument(call)))
            except NotSubmitted as error:
                return {"not_submitted": str(error)}

        return call_now


def function_of(kind: str, verb: str) -> str:
    """Return the name under which a worker calls a method; no function of an app has a slash."""
    return f"{kind}/{verb}"


def _argument(call: str) -> Any:
    """Return what a method is called with: the run, or what `submit` has returned for it."""
    told = json.loads(call)
    if "run" not in told:
        return told["handle"]
    run = told["run"]
    due_at = _EPOCH + timedelta(microseconds=run.pop("due_micros"))
    return RemoteRun(due_at=due_at, **run)


def _told(value: Any) -> dict[str, Any]:
    """Return what a method returned, in the words of the worker."""
    if isinstance(value, Status):
        plain = {name: getattr(value, name) for name in Status.__dataclass_fields__}
        return {"status": plain | {"output": _kept(value.output)}}
    return {"value": to_plain(value)}


def _kept(output: Any) -> str | None:
    """Return an output as JSON. One that cannot be kept is no failure: the work is done."""
    try:
        text = None if output is None else to_json(output).decode()
        if len(json.dumps(text)) > _LARGEST_OUTPUT:
            raise ValueError("it is over 1 MiB")
    except Exception as error:  # noqa: BLE001 (a model converts itself by the user's code)
        print(f"the output was not kept: {error}")  # noqa: T201 (it is of the run)
        return None
    return text


def _check(kind: object, made: object) -> None:
    """Raise `TypeError` where the class cannot be one; the name is that of a type of jobs."""
    if not isinstance(kind, str) or not _TYPE_NAME.fullmatch(kind) or kind in _OWN_TYPES:
        raise TypeError(
            f"{kind!r} cannot be the name of a type of jobs: lower case letters, digits, _ and -, "
            f"beginning with a letter, and none of {', '.join(_OWN_TYPES)}"
        )
    if not isinstance(made, type):
        raise TypeError(f"the executor of type {kind} must be a class, not {made!r}")
    for verb in ("submit", "status"):
        if not callable(getattr(made, verb, None)):
            raise TypeError(f"{made.__name__} has no method {verb}(), which an executor needs")
    for name in ("every", "patience", "call_timeout"):
        seconds = getattr(made, name, 1.0)
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        least = 0.0 if name == "patience" else _SHORTEST
        if not is_number or not least <= seconds <= _LONGEST:
            raise TypeError(f"{made.__name__}.{name} must be seconds, not {seconds!r}")
    schema = getattr(made, "schema", None)
    if schema is not None and not isinstance(schema, Mapping):
        raise TypeError(f"{made.__name__}.schema must be a mapping, a JSON Schema")
