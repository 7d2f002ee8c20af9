"""Answers on their way out: made, encoded, described. What they contain is told in `rota.api`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, get_origin

import msgspec
from fastapi.routing import APIRoute
from starlette.responses import Response

from rota.api.answers import Answer
from rota.api.problems import Problem
from rota.domain import errors

JSON = "application/json"
REF = "#/components/schemas/{name}"
A = TypeVar("A", bound=Answer)
Kind = Any  # a class of answers, or `Page[…]` of one
Endpoint = Callable[..., Coroutine[Any, Any, Any]]


def fill(kind: type[A], source: object, /, **others: Any) -> A:
    """Make an answer of the attributes of `source` that have its names, and of `others`.

    A field that neither has is an error: defaults are for whoever reads an answer.
    """
    names = kind.__struct_fields__
    return kind(**{name: getattr(source, name) for name in names if name not in others}, **others)


def problem_answers(problems: Iterable[errors.Problem]) -> tuple[Problem, ...]:
    return tuple(fill(Problem, problem) for problem in problems)


def encode(answer: Answer) -> bytes:
    """The JSON of an answer."""
    return _encoder.encode(answer)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"an answer cannot have a {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def is_kind(annotation: Any) -> bool:
    """Whether a value of this type is an answer."""
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Answer)


def encode_answers(route: APIRoute) -> None:
    """Let a route send what its endpoint answers without Pydantic.

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
    """The schema of each kind of answer, and the components that these refer to."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    for component in components.values():
        properties = component.get("properties", {})
        component["required"] = list(properties)  # a server sends them all
        for schema in properties.values():
            schema.pop("default", None)
    return schemas, components
