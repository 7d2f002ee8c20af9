"""Requests over kept-alive connections of the standard library, which import five times faster
than a full HTTP client: a command line cannot wait for one.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rota.sdk.errors import Invalid, NotRota, RotaApiError, Unreachable
from rota.sdk.exchange import (
    CHECK_ADDRESS,
    EVENT_STREAM,
    Reply,
    Request,
    not_rota,
    refuse_error,
)
from rota.sdk.server import Server

if TYPE_CHECKING:
    import ssl

_PIECE = 64 * 1024
_BROKEN = (OSError, http.client.HTTPException)

_MISMATCH = "mismatch"  # in OpenSSL's messages about names and addresses alike
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
_NO_STATUS = re.compile(r"illegal status line: bytearray\(b['\"](.*)['\"]\)")  # httpx's words
_SHOWN = 60  # characters of what something else sent
_HUNG_UP = ("without response", "without sending a response")


class Transport:
    """Transport to one server. Threads may share it."""

    def __init__(self, server: Server, timeout_seconds: float) -> None:
        self._url = urlsplit(server.url)
        self._address = server.url
        self._trust = tls_context_of(server)
        self._timeout_seconds = timeout_seconds
        self._idle: list[http.client.HTTPConnection] = []

    def exchange(self, request: Request) -> Reply:
        """Send and read the answer; retry a repeatable request if a kept connection was stale."""
        while self._idle:
            connection = self._idle.pop()
            try:
                return self._on(connection, request)
            except _BROKEN as error:
                connection.close()
                if not request.is_repeatable:
                    raise self._unreachable(error) from error
        connection = self._connection(self._timeout_seconds)
        try:
            return self._on(connection, request)
        except _BROKEN as error:
            connection.close()
            raise self._unreachable(error) from error

    def stream(self, request: Request, timeout_seconds: float) -> Generator[bytes, None, None]:
        """Yield the body of the answer as it comes; raise `Unreachable` if it breaks off."""
        connection = self._connection(timeout_seconds)
        try:
            with closing(connection):
                response = self._send(connection, request)
                head = self._reply(response, b"")
                if head.status >= 300:
                    refuse_error(replace(head, body=response.read()))
                if not is_answer_to(request, head):
                    raise not_rota(replace(head, body=response.read1(_PIECE)))
                while data := response.read1(_PIECE):
                    yield data
        except _BROKEN as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _on(self, connection: http.client.HTTPConnection, request: Request) -> Reply:
        response = self._send(connection, request)
        reply = self._reply(response)
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return reply

    def _reply(self, response: http.client.HTTPResponse, body: bytes | None = None) -> Reply:
        return Reply(
            response.status,
            response.read() if body is None else body,
            self._address,
            response.getheader("Content-Type", ""),
            response.getheader("Location", ""),
        )

    def _send(
        self, connection: http.client.HTTPConnection, request: Request
    ) -> http.client.HTTPResponse:
        target = self._url.path + request.target
        try:
            connection.request(request.method, target, request.body, dict(request.headers))
        except (BrokenPipeError, ConnectionResetError) as error:
            return _early_answer(connection, error)
        return connection.getresponse()

    def _connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._trust is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        return http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=self._trust)

    def _unreachable(self, error: Exception) -> RotaApiError:
        return unreachable(self._address, error)


def _early_answer(
    connection: http.client.HTTPConnection, error: OSError
) -> http.client.HTTPResponse:
    """Read the answer of a server that refused a long body, and closed, before all was sent."""
    try:
        response = connection.getresponse()
    except _BROKEN:
        raise error from None
    response.will_close = True
    return response


def tls_context_of(server: Server) -> ssl.SSLContext | None:
    """Return the TLS context that checks its certificate; None: it has none."""
    if not server.url.startswith("https:"):
        return None
    import ssl  # most servers are near and need none

    try:
        return ssl.create_default_context(cafile=server.authorities)
    except (OSError, ssl.SSLError) as error:
        message = f"{server.authorities} has no certificates to trust: {error}"
        raise Invalid(message, hint="ROTA_TLS_CA names a PEM file") from error


def is_answer_to(request: Request, head: Reply) -> bool:
    """Return whether a stream of events is one; other streams are taken as they come."""
    return request.headers.get("Accept") != EVENT_STREAM or head.is_event_stream


def unreachable(address: str, error: Exception) -> RotaApiError:
    """Build the error to raise, with what to try next."""
    reason = str(error) or "the connection broke"
    if sent := _other_protocol(error):
        return NotRota(f"{address} does not speak HTTP: it sent {sent}", hint=CHECK_ADDRESS)
    if address.startswith("https:"):
        if doubt := _certificate_problem(error):
            return _untrusted(address, doubt)
        if any(word in reason.upper() for word in _NO_TLS):
            plain = "http:" + address.removeprefix("https:")
            return Unreachable(f"{address} does not speak TLS", hint=f"try ROTA_URL={plain}")
    hint = "is it running? `rota up` starts one; ROTA_URL names another"
    if address.startswith("http:") and any(word in reason for word in _HUNG_UP):
        hint = "does it speak TLS? then its address begins with https://; or is it another program?"
    told = (error.strerror if isinstance(error, OSError) else None) or reason
    return Unreachable(f"no answer from {address}: {told}", hint=hint)


def _other_protocol(error: Exception) -> str:
    """Return what came instead of HTTP, in quotes; "": nothing else came."""
    if isinstance(error, http.client.RemoteDisconnected):
        return ""
    if isinstance(error, http.client.BadStatusLine):
        sent = str(error)
    elif found := _NO_STATUS.match(str(error)):
        sent = found[1]
    else:
        return ""
    shown = "".join(each if each.isprintable() else "·" for each in sent.strip()[:_SHOWN])
    return f'"{shown}"'


def _untrusted(address: str, doubt: str) -> Unreachable:
    if _MISMATCH in doubt:
        return Unreachable(
            f"the certificate of {address} is for another name: {doubt}",
            hint="call the server by a name that its certificate has",
        )
    return Unreachable(
        f"the certificate of {address} is not trusted: {doubt}",
        hint="set ROTA_TLS_CA to the PEM file of the authority that signed it",
    )


def _certificate_problem(error: BaseException) -> str:
    """Return what is wrong with the certificate; "": nothing is known to be."""
    doubts = (getattr(each, "verify_message", "") for each in _causes(error))
    return next((doubt for doubt in doubts if doubt), "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes: HTTP clients wrap what TLS raised."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
