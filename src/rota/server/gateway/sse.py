"""Server-sent events: streams that live as long as both sides do."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.domain.errors import Denied
from rota.server.gateway.auth import Credential, TrustedTokens

KEEP_ALIVE = b": still here\n\n"
_RECHECK_SECONDS = 5.0

Frames = AsyncGenerator[bytes, None]


def frame(data: bytes, *, event: str = "", event_id: str = "") -> bytes:
    """One event. `data` is JSON, which has no raw line breaks."""
    fields = {"id": event_id, "event": event}
    head = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    return b"%bdata: %b\n\n" % (head.encode(), data)


class EventStream(StreamingResponse):
    """Sends frames as they come, and ends their source when the caller is gone."""

    media_type = "text/event-stream"

    def __init__(self, frames: Frames) -> None:
        super().__init__(frames, headers={"X-Accel-Buffering": "no"})
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._frames.aclose()


def still_allowed(request: Request) -> Callable[[], Awaitable[bool]]:
    """A check, cheap to call often, whether a stream's caller has not lost the right to it."""
    tokens: TrustedTokens = request.app.state.tokens
    credential: Credential = request.state.credential
    checked_at = time.monotonic()

    async def check() -> bool:
        nonlocal checked_at
        if time.monotonic() - checked_at < _RECHECK_SECONDS:
            return True
        checked_at = time.monotonic()
        try:
            await tokens.caller(credential.secret)
        except Denied:
            return False
        return True

    return check


async def while_allowed(frames: Frames, check: Callable[[], Awaitable[bool]]) -> Frames:
    """The frames, until the right to see them ends."""
    try:
        async for each in frames:
            if not await check():
                return
            yield each
    finally:
        await frames.aclose()


# What OpenAPI says of a stream.
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "events", "content": {"text/event-stream": {}}}
}
