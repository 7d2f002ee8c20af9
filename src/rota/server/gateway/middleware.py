"""Middleware of every request: trace id, access log, unexpected errors, body limits."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Iterable, Mapping

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.domain.errors import Invalid, RotaError
from rota.domain.files import MOST_FILE_BYTES
from rota.server.gateway.metrics import Requests
from rota.server.gateway.problems import answer, status_of

_TRACEPARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_GONE = 499  # the caller disconnected before the answer; only the log and metrics have this status
_QUIET = frozenset({"/livez", "/readyz", "/metrics"})  # asked every few seconds by machines
_log = structlog.get_logger("rota.server.gateway")
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"default-src 'none'; style-src 'self'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}
_STRICT_TRANSPORT = {b"strict-transport-security": b"max-age=31536000"}
_NOT_KEPT = {b"cache-control": b"no-store"}
MAX_OPEN_BODY = 16 * 1024  # bytes: twice a token of a provider


class Access:
    """Outermost middleware: trace id, log line, and errors that nothing else handled."""

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
            if status == _GONE:  # once an answer has begun, no other one can be sent
                await answer(error, trace_id)(scope, receive, noting)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _report(self, error: Exception, scope: Scope) -> None:
        """Log errors that are the server's fault; other errors are only sent to the caller."""
        facts = {"route": _route(scope), "trace_id": scope["state"]["trace_id"]}
        if not isinstance(error, RotaError):
            _log.error("unexpected error", exc_info=error, **facts)
        elif status_of(error) >= 500:
            _log.warning("request failed", code=error.code, error=error.message, **facts)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        self._requests.observe(scope["method"], route, status, seconds)
        caller, client = scope["state"].get("caller"), scope.get("client")
        is_our_fault = status >= 500 and route not in _QUIET
        (_log.warning if is_our_fault else _log.debug)(
            "request",
            method=scope["method"],
            route=route,
            status=status,
            ms=round(seconds * 1_000, 2),
            caller=caller.name if caller else None,
            address=client[0] if client else None,
            trace_id=scope["state"]["trace_id"],
        )


def _trace_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"traceparent" and (match := _TRACEPARENT.fullmatch(value)):
            return match[1].decode()
    return f"{random.getrandbits(128):032x}"


def _route(scope: Scope) -> str:
    """Return the route's template, never the path: paths contain names, without a bound."""
    route = scope.get("route")
    return route.path if route is not None else "(none)"


class SecurityHeaders:
    """Middleware that keeps answers from being run, framed, sniffed or cached by a browser."""

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        self._headers = _HEADERS | (_STRICT_TRANSPORT if secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = message["headers"]
                headers = self._headers if _has_caching_rule(said) else self._headers | _NOT_KEPT
                others = [each for each in said if each[0] not in headers]
                message["headers"] = [*others, *headers.items()]
            await send(message)

        await self._app(scope, receive, adding if scope["type"] == "http" else send)


def _has_caching_rule(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether an answer has its own caching rule."""
    return any(name == b"cache-control" for name, _ in headers)


class BodyLimit:
    """Middleware that refuses a body that is too large, before or while it is read.

    `streamed` has the limits of bodies that are processed piece by piece, by path and media type;
    what is put below `files` is taken in as it comes, within the quota of its project.
    Calls that are open to strangers have little to say: so they cannot fill the memory.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_bytes: int,
        streamed: Mapping[tuple[str, str], int],
        open_calls: Collection[tuple[str, str]] = (),
        files: str = "",
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._streamed = streamed
        self._open_calls = open_calls
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            max_bytes = self._limit(scope["method"], scope["path"], headers)
            self._check_headers(headers, max_bytes)
            receive = self._counting(receive, max_bytes)
        await self._app(scope, receive, send)

    def _limit(self, method: str, path: str, headers: dict[bytes, bytes]) -> int:
        if (method, path) in self._open_calls:
            return MAX_OPEN_BODY
        if self._files and method == "PUT" and path.startswith(self._files):
            return MOST_FILE_BYTES
        media_type = media_type_in(headers.get(b"content-type", b"").decode("latin-1"))
        return self._streamed.get((path, media_type), self._max_bytes)

    def _check_headers(self, headers: dict[bytes, bytes], max_bytes: int) -> None:
        encoding = headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise Invalid(
                "compressed bodies are not read",
                code="unsupported_media_type",
                hint="send it without Content-Encoding",
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > max_bytes:
            raise Invalid(_complaint(max_bytes), code="too_large")

    def _counting(self, receive: Receive, max_bytes: int) -> Receive:
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > max_bytes:
                # FastAPI reads bodies for us, and lets no other exception pass unchanged.
                raise HTTPException(413, _complaint(max_bytes))
            return message

        return counting


def _complaint(max_bytes: int) -> str:
    return f"the body has more than {max_bytes:,} bytes"


def media_type_in(content_type: str) -> str:
    """Return the media type in a Content-Type header, without its parameters."""
    return content_type.partition(";")[0].strip().lower()
