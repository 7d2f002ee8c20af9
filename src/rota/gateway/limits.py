"""What no request may exceed, and what every answer says to browsers."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.domain.errors import Invalid

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STRICT_TRANSPORT = "max-age=31536000"


class SecurityHeaders:
    """Middleware: answers are inert in a browser, are not framed, sniffed or kept."""

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        extra = {"Strict-Transport-Security": _STRICT_TRANSPORT} if secure else {}
        self._headers = {**_HEADERS, **extra}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, adding if scope["type"] == "http" else send)


class BodyLimit:
    """Middleware: a body that is too large is refused before, or while, it is read.

    `streamed` has the limits of bodies that are worked on piece by piece, by path and media type.
    """

    def __init__(
        self, app: ASGIApp, *, max_bytes: int, streamed: Mapping[tuple[str, str], int]
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            max_bytes = self._limit(scope["path"], headers)
            self._check_headers(headers, max_bytes)
            receive = self._counting(receive, max_bytes)
        await self._app(scope, receive, send)

    def _limit(self, path: str, headers: dict[bytes, bytes]) -> int:
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
    """What a header Content-Type names, without its parameters."""
    return content_type.partition(";")[0].strip().lower()
