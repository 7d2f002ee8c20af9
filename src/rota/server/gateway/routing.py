"""Routes that read requests strictly and encode answers.

No parameter is ignored, no JSON is guessed at; answers are structs of `rota.api`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, get_origin
from urllib.parse import parse_qsl

import msgspec
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params, get_typed_return_annotation
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from rota.api.answers import Answer, Problem
from rota.domain import errors
from rota.domain.errors import Invalid, did_you_mean, quoted
from rota.domain.errors import Problem as Fault
from rota.server.gateway.parsers import parse_json

JSON = "application/json"
REF = "#/components/schemas/{name}"
A = TypeVar("A", bound=Answer)
Kind = Any  # a class of answers, or `Page[…]` of one
Endpoint = Callable[..., Coroutine[Any, Any, Any]]


def fill(kind: type[A], source: object, /, **others: Any) -> A:
    """Create an answer from the attributes of `source` that have its field names, and `others`.

    A field that neither has is an error: defaults are for clients that decode an answer.
    """
    names = kind.__struct_fields__
    return kind(**{name: getattr(source, name) for name in names if name not in others}, **others)


def problem_answers(problems: Iterable[errors.Problem]) -> tuple[Problem, ...]:
    return tuple(fill(Problem, problem) for problem in problems)


def encode(answer: Answer) -> bytes:
    """Encode an answer as JSON."""
    return _encoder.encode(answer)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"an answer cannot have a {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def is_kind(annotation: Any) -> bool:
    """Return whether a value of this type is an answer."""
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Answer)


def encode_answers(route: APIRoute) -> None:
    """Make a route send its endpoint's answer without Pydantic.

    The response that FastAPI gives to endpoints, for headers and another status, becomes the one
    that is sent.
    """
    dependant = route.dependant
    endpoint = dependant.call
    assert endpoint is not None
    is_asked_for = dependant.response_param_name is not None
    name = dependant.response_param_name = dependant.response_param_name or "response"
    dependant.call = _encoding(endpoint, name, route.status_code or 200, passes=is_asked_for)


def _encoding(endpoint: Endpoint, name: str, status: int, *, passes: bool) -> Endpoint:
    @wraps(endpoint)
    async def encoding(**values: Any) -> Response:
        response: Response = values[name] if passes else values.pop(name)
        response.body = body = encode(await endpoint(**values))
        response.status_code = response.status_code or status
        response.headers["content-length"] = str(len(body))
        response.headers["content-type"] = JSON
        return response

    return encoding


def describe(kinds: Sequence[Kind]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Return the schema of each kind of answer, and the components that these refer to."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    for component in components.values():
        properties = component.get("properties", {})
        component["required"] = list(properties)  # a server sends them all
        for schema in properties.values():
            schema.pop("default", None)
    return schemas, components


class StrictRoute(APIRoute):
    """Route that refuses unknown query parameters and encodes answers of `rota.api`.

    Its answers are taken from the endpoint's annotation, or from `response_model` and the models of
    `responses`; `answers` has them by status.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        self.answers = _take_answers(endpoint, kwargs)
        super().__init__(path, endpoint, **kwargs)
        _drop_repeated(self.dependant)
        if self.answers:
            encode_answers(self)
        params = get_flat_params(self.dependant)
        self._known = [field.alias for field in params if isinstance(field.field_info, Query)]
        self._beginning = path.partition("{")[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # Routes are tried one by one, and patterns take ten times as long as beginnings.
        if not scope["path"].startswith(self._beginning):
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"]:
            self._refuse_unknown(scope["query_string"].decode("latin-1"))
        await super().handle(scope, receive, send)

    def _refuse_unknown(self, query: str) -> None:
        given = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
        unknown = [name for name in given if name not in self._known]
        if unknown:
            raise Invalid(
                "the address has unknown parameters",
                [
                    Fault(f"unknown parameter {quoted(name)}", hint=did_you_mean(name, self._known))
                    for name in unknown
                ],
                code="unknown_parameter",
            )

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


def _take_answers(endpoint: Callable[..., Any], kwargs: dict[str, Any]) -> dict[int, Kind]:
    """Return a route's answers by status, removed from what Pydantic would make models of."""
    model = kwargs.get("response_model")
    kind = model if is_kind(model) else get_typed_return_annotation(endpoint)
    if not is_kind(kind):
        return {}
    answers = {kwargs.get("status_code") or 200: kind}
    responses = {status: dict(told) for status, told in (kwargs["responses"] or {}).items()}
    for status, told in responses.items():
        if is_kind(told.get("model")):
            answers[status] = told.pop("model")
    kwargs |= {"response_model": None, "responses": responses}
    return answers


def _drop_repeated(route: Dependant) -> None:
    """Drop repeated dependencies: FastAPI resolves one wherever it is named, once is enough."""
    inner = {call for each in route.dependencies for call in _calls_inside(each)}
    route.dependencies[:] = [
        each for each in route.dependencies if each.name is not None or each.call not in inner
    ]


def _calls_inside(dependant: Dependant) -> Iterator[Callable[..., Any] | None]:
    for each in dependant.dependencies:
        yield each.call
        yield from _calls_inside(each)


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parse_json(await self.body())


async def refuse_gone(request: Request) -> None:
    """Raise `ClientDisconnect` if nobody waits for the answer any more."""
    if await request.is_disconnected():
        raise ClientDisconnect
