"""OpenAPI 3.1 document, completed where FastAPI lacks the information."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from rota.api.answers import ProblemReport
from rota.server.gateway.auth import REQUEST_HEADER, Where, cookie_name, need_of
from rota.server.gateway.parameters import GatewaySettings
from rota.server.gateway.routing import JSON, StrictRoute, describe

_ABOUT = (
    "Schedule jobs, run them, and see why they wait. Errors are RFC 9457 problems; lists come in "
    "parts, `next_cursor` leads to the next one; instants are RFC 3339, due times "
    "to come with the offset of their schedule's zone."
)


def openapi_document(app: FastAPI, settings: GatewaySettings) -> dict[str, Any]:
    """Return the document of an app, built at the first call."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="Rota", version=settings.version, description=_ABOUT, routes=app.routes
        )
        _describe_answers(document, app)
        _describe_security(document, settings)
        for route in app.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                _describe_access(document, route)
        app.openapi_schema = document
    return app.openapi_schema


def _describe_answers(document: dict[str, Any], app: FastAPI) -> None:
    told = [
        (_operation(document, route, method)["responses"][str(status)], kind)
        for route in app.routes
        if isinstance(route, StrictRoute) and route.include_in_schema
        for method in route.methods or ()
        for status, kind in route.answers.items()
    ]
    schemas, components = describe([*(kind for _, kind in told), ProblemReport])
    for (response, _), schema in zip(told, schemas, strict=False):  # the report comes last
        response["content"] = {JSON: {"schema": schema}}
    document["components"]["schemas"].update(components)


def _operation(document: dict[str, Any], route: APIRoute, method: str) -> dict[str, Any]:
    operation: dict[str, Any] = document["paths"][route.path_format][method.lower()]
    return operation


def _describe_security(document: dict[str, Any], settings: GatewaySettings) -> None:
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": cookie_name(secure=settings.secure_cookies),
            "description": f"Changes also need the header {REQUEST_HEADER}: 1.",
        },
    }
    document["security"] = [{"token": []}, {"session": []}]
    document["servers"] = [{"url": settings.base_url}]


def _describe_access(document: dict[str, Any], route: APIRoute) -> None:
    for method in route.methods or ():
        operation = _operation(document, route, method)
        need = need_of(method, route)
        if need is None:
            operation["security"] = []
            continue
        operation["x-rota-scope"] = str(need.where)
        if need.where is not Where.NOWHERE:
            operation["x-rota-role"] = str(need.role)
        if need.verb is not None:
            operation["x-rota-verb"] = str(need.verb)
