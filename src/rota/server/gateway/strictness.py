"""Routes that read requests strictly: no parameter is ignored, no JSON is guessed at."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params, get_typed_return_annotation
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from rota.domain.errors import Invalid, Problem
from rota.domain.wording import did_you_mean, quoted
from rota.server.gateway.answers import Kind, encode_answers, is_kind


class StrictRoute(APIRoute):
    """A route that refuses query parameters it does not have, and encodes answers of `rota.api`.

    What it answers is told by the endpoint's annotation, or by `response_model` and the models of
    `responses`; `answers` has it by status.
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
                    Problem(
                        f"unknown parameter {quoted(name)}", hint=did_you_mean(name, self._known)
                    )
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
    """What a route answers by status, taken out of what Pydantic would make models of."""
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
    """FastAPI works a dependency out wherever it is named: what all routes need, once is enough."""
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


def parse_json(body: bytes) -> Any:
    """JSON as RFC 8259 has it; a ValueError says what is wrong.

    Python by itself takes a key twice, `NaN`, and escapes that no text can hold.
    """
    text = body.decode()
    value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise json.JSONDecodeError("a key is there twice", "", 0)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not a number", "", 0)
