"""Requests from an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import replace

import httpx

from rota.sdk.exchange import Body, Reply, Request, not_rota, refuse_error
from rota.sdk.server import Server
from rota.sdk.transport import is_answer_to, tls_context_of, unreachable


class AsyncTransport:
    """Transport to one server from one event loop."""

    def __init__(self, server: Server, timeout_seconds: float) -> None:
        self._address = server.url
        # Like the sync client, it speaks to the server itself, whatever proxies are about.
        self._http = httpx.AsyncClient(
            timeout=timeout_seconds, trust_env=False, verify=tls_context_of(server) or True
        )

    async def exchange(self, request: Request) -> Reply:
        """Send and read the answer; retry a repeatable request if a kept connection was stale."""
        try:
            return await self._once(request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
            if not request.is_repeatable:
                raise unreachable(self._address, error) from error
        except httpx.HTTPError as error:
            raise unreachable(self._address, error) from error
        try:
            return await self._once(request)
        except httpx.HTTPError as error:
            raise unreachable(self._address, error) from error

    async def stream(self, request: Request, timeout_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the body of the answer as it comes; raise `Unreachable` if it breaks off."""
        built = self._build(request, httpx.Timeout(timeout_seconds))
        try:
            response = await self._http.send(built, stream=True)
            try:
                head = self._reply(response, b"")
                if head.status >= 300:
                    refuse_error(replace(head, body=await response.aread()))
                if not is_answer_to(request, head):
                    raise not_rota(replace(head, body=await _first_piece(response)))
                async for data in response.aiter_bytes():
                    yield data
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise unreachable(self._address, error) from error

    async def close(self) -> None:
        await self._http.aclose()

    async def _once(self, request: Request) -> Reply:
        response = await self._http.send(self._build(request))
        return self._reply(response, response.content)

    def _reply(self, response: httpx.Response, body: bytes) -> Reply:
        media_type = response.headers.get("Content-Type", "")
        location = response.headers.get("Location", "")
        return Reply(response.status_code, body, self._address, media_type, location)

    def _build(self, request: Request, timeout: httpx.Timeout | None = None) -> httpx.Request:
        built = self._http.build_request(
            request.method,
            self._address + request.target,
            headers=dict(request.headers),
            content=_content(request.body),
        )
        if timeout is not None:
            built.extensions["timeout"] = timeout.as_dict()
        return built


async def _first_piece(response: httpx.Response) -> bytes:
    return await anext(response.aiter_bytes(), b"")


def _content(body: Body | None) -> bytes | AsyncIterator[bytes] | None:
    return body if body is None or isinstance(body, bytes) else _pieces(body)


async def _pieces(body: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in body:
        yield piece
