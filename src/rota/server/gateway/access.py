"""The edge of every request: its trace id, its line in the log, and what nobody expected."""

from __future__ import annotations

import random
import re
import time

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.domain.errors import RotaError
from rota.server.gateway.metrics import Requests
from rota.server.gateway.problems import answer, status_of

_TRACEPARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_GONE = 499  # the caller left before it was answered; nobody sees this status but the log
_QUIET = frozenset({"/livez", "/readyz", "/metrics"})  # asked every few seconds by machines
_log = structlog.get_logger("rota.server.gateway")


class Access:
    """Middleware that sees requests first and answers last."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["trace_id"] = trace_id = _trace_id(scope)
        status = _GONE
        began = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            status = _GONE
        except Exception as error:  # noqa: BLE001 (the edge of a request: nothing is above it)
            self._report(error, scope)
            if status == _GONE:
                await answer(error, trace_id)(scope, receive, noting)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _report(self, error: Exception, scope: Scope) -> None:
        """Errors with a meaning are the caller's to know; in a stream only the log can tell."""
        facts = {"route": _route(scope), "trace_id": scope["state"]["trace_id"]}
        if not isinstance(error, RotaError):
            _log.error("unexpected error", exc_info=error, **facts)
        elif status_of(error) >= 500:
            _log.warning("request failed", code=error.code, error=error.message, **facts)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        self._requests.observe(scope["method"], route, status, seconds)
        caller = scope["state"].get("caller")
        is_our_fault = status >= 500 and route not in _QUIET
        (_log.warning if is_our_fault else _log.debug)(
            "request",
            method=scope["method"],
            route=route,
            status=status,
            ms=round(seconds * 1_000, 2),
            caller=caller.name if caller else None,
            trace_id=scope["state"]["trace_id"],
        )


def _trace_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"traceparent" and (match := _TRACEPARENT.fullmatch(value)):
            return match[1].decode()
    return f"{random.getrandbits(128):032x}"


def _route(scope: Scope) -> str:
    """The template, never the path: paths have names in them and no end of variants."""
    route = scope.get("route")
    return route.path if route is not None else "(none)"
