"""Outgoing requests to addresses that a project names.

The rules are in `rota.domain.addresses`. A name is looked up once for each connection, all that was
found is checked, and the connection goes to one of these very addresses, with the name in SNI, in
the check of the certificate and in `Host`. So an answer that changes between two look-ups gains
nothing. Proxies and credentials of the environment are not used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, TypeAlias

import httpcore

from rota import __version__
from rota.domain.addresses import Address, Network, Target, check_addresses, redirected
from rota.domain.errors import Denied, Invalid, RotaError, Unavailable

MAX_HOPS = 5
_CONNECT_SECONDS = 10.0  # for all addresses of a name together
_RESOLVE_SECONDS = 10.0
_MAX_HEADERS = 200
_SAME_REQUEST = frozenset({307, 308})
_USUALLY_BODILESS = frozenset({"GET", "HEAD", "DELETE"})
_REDIRECTS = frozenset({301, 302, 303}) | _SAME_REQUEST
# What another origin may be told: nothing of what may say who asks.
HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_AGENT = f"rota/{__version__}"


class NotSent(Unavailable):
    """The request did not reach anybody: it may be sent again whatever it asks for."""

    code = "not_sent"


class NoAnswer(Unavailable):
    """The request may have been received and done, and no answer came."""

    code = "no_answer"


class RedirectRefused(Denied):
    """Nobody may be sent on to there: whoever wanted that has received the request."""

    code = "redirect_refused"


@dataclass(frozen=True, slots=True)
class Request:
    """Request to an address that a project names."""

    method: str
    target: Target
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Response:
    """Answer, with as much of its body as was asked for."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    target: Target  # who gave it: the last of the redirects
    is_cut: bool = False  # there was more of the body

    def header(self, name: str) -> str:
        """Return the first header of a name; "": there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


async def resolve(host: str, port: int, opened: Sequence[Network] = ()) -> tuple[Address, ...]:
    """Look a name up once, and return its addresses; each of them may be reached.

    Raise `Denied` if one of them must not be, and `NotSent` if there are none.
    """
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found = await _look_up(host, port)
    except TimeoutError:
        raise NotSent(f"{host} could not be looked up within {_RESOLVE_SECONDS:.0f} s") from None
    except (OSError, UnicodeError) as error:
        raise NotSent(f"{host} has no address: {_reason(error)}") from error
    addresses = tuple(dict.fromkeys(ip_address(str(entry[4][0])) for entry in found))
    check_addresses(host, addresses, opened)
    if not addresses:
        raise NotSent(f"{host} has no address")
    return addresses


_Found: TypeAlias = Sequence[tuple[Any, ...]]


async def _look_up(host: str, port: int) -> _Found:
    """Look a name up in a thread of its own: servers of names may take as long as they like.

    The few threads that a loop has for this are for all of a process, so that who owns some names
    could keep it from finding any other, its store's too. Nobody waits for the thread at the end.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[_Found] = loop.create_future()

    def settle(addresses: _Found, error: Exception | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def look_up() -> None:
        addresses: _Found = ()
        error: Exception | None = None
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Exception as failed:  # noqa: BLE001 - raised where it is waited for
            error = failed
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, addresses, error)

    threading.Thread(target=look_up, name="rota-lookup", daemon=True).start()
    return await found


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Network of httpcore, or of httpx above it, that leads to addresses that may be reached."""

    def __init__(self, opened: Sequence[Network] = ()) -> None:
        self._opened = tuple(opened)
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await resolve(host, port, self._opened)
        share = (timeout or _CONNECT_SECONDS) / len(addresses)
        *others, last = addresses
        for address in others:
            try:
                return await self._inner.connect_tcp(
                    str(address), port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(str(last), port, share, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise Denied("a socket of this machine must not be reached", code="address_refused")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class Outgoing:
    """Sender of requests. Each has a connection of its own, so each is looked up and checked."""

    def __init__(
        self, opened: Sequence[Network] = (), authorities: ssl.SSLContext | None = None
    ) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=authorities or ssl.create_default_context(),
            max_connections=None,
            max_keepalive_connections=0,
            network_backend=CheckedBackend(opened),
        )

    async def send(self, request: Request, seconds: float, max_body: int) -> Response:
        """Send a request, follow redirects, and return the answer to the last one.

        All of it takes at most so many seconds. Raise `NotSent` or `NoAnswer`, `Denied` for what
        must not be reached, `RedirectRefused` if an answer led there, and `Invalid` for an answer
        that makes no sense.
        """
        trace = _Trace()
        try:
            async with asyncio.timeout(seconds):
                for _ in range(MAX_HOPS + 1):
                    response = await self._exchange(request, max_body, trace)
                    following = _following(request, response)
                    if following is None:
                        return response
                    request = following
        except TimeoutError:
            raise trace.failure(f"{request.target.shown} gave no answer in {seconds:g} s") from None
        except NotSent as error:
            raise trace.failure(error.message) from error
        except Denied as error:
            if not trace.has_begun:
                raise
            told: dict[str, Any] = {"code": error.code, "hint": error.hint, "facts": error.facts}
            raise RedirectRefused(error.message, **told) from error
        raise RedirectRefused(
            f"{request.target.shown} is the end of more than {MAX_HOPS} redirects"
        )

    async def close(self) -> None:
        await self._pool.aclose()

    async def _exchange(self, request: Request, max_body: int, trace: _Trace) -> Response:
        target = request.target
        try:
            async with self._pool.stream(
                request.method,
                httpcore.URL(
                    scheme=target.scheme.encode(),
                    host=target.host.encode(),
                    port=target.port,
                    target=target.path.encode(),
                ),
                headers=_headers(request),
                content=request.body or None,
                extensions={"trace": trace, "timeout": {"connect": _CONNECT_SECONDS}},
            ) as answer:
                return await _read(answer, target, max_body)
        except RotaError:
            raise
        except (httpcore.LocalProtocolError, httpcore.UnsupportedProtocol) as error:
            raise Invalid(f"{target.shown} cannot be asked: {error}", code="bad_request") from error
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise trace.failure(f"{target.shown} cannot be reached: {_reason(error)}") from error


class _Trace:
    """Notes whether a request began to go out, to whomever it went first."""

    def __init__(self) -> None:
        self.has_begun = False

    def failure(self, message: str) -> NotSent | NoAnswer:
        return NoAnswer(message) if self.has_begun else NotSent(message)

    async def __call__(self, event: str, _: Mapping[str, Any]) -> None:
        self.has_begun = self.has_begun or event.endswith("send_request_headers.started")


async def _read(answer: httpcore.Response, target: Target, max_body: int) -> Response:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in answer.headers[:_MAX_HEADERS]
    ]
    body = bytearray()
    async for piece in answer.aiter_stream():
        body += piece
        if len(body) > max_body:
            return Response(answer.status, headers, bytes(body[:max_body]), target, is_cut=True)
    return Response(answer.status, headers, bytes(body), target)


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the headers; a body comes as it is, as one that is packed may unpack to anything."""
    given = {name.lower(): (name, value) for name, value in request.headers.items()}
    usual = {"user-agent": ("User-Agent", _AGENT), "accept": ("Accept", "*/*")}
    own = {
        "host": ("Host", request.target.authority),
        "accept-encoding": ("Accept-Encoding", "identity"),
        "connection": ("Connection", "close"),
    }
    if request.body or request.method not in _USUALLY_BODILESS:
        own["content-length"] = ("Content-Length", str(len(request.body)))
    # As bytes, each character one: httpcore itself takes ASCII only.
    headers = (usual | given | own).values()
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]


def _following(request: Request, response: Response) -> Request | None:
    """Return the request that a redirect asks for; None: it is none."""
    location = response.header("location")
    if response.status not in _REDIRECTS or not location:
        return None
    target = redirected(request.target, location)
    is_elsewhere = target.origin != request.target.origin
    is_same = response.status in _SAME_REQUEST or request.method in ("GET", "HEAD")
    is_same = is_same or (response.status != 303 and request.method != "POST")
    if is_same and request.body and is_elsewhere:
        raise Denied(
            f"{request.target.origin} wants what was sent to it sent to {target.origin}",
            code="redirect_refused",
            hint="name that address itself, if it is meant",
        )
    following = replace(request, target=target)
    if not is_same:
        following = replace(following, method="GET", body=b"", headers=_bodiless(request.headers))
    if is_elsewhere:
        kept = {k: v for k, v in following.headers.items() if k.lower() in HARMLESS}
        following = replace(following, headers=kept)
    return following


def _bodiless(headers: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in headers.items() if not k.lower().startswith("content-")}


def _reason(error: BaseException) -> str:
    """Return what an error says, or the one that it comes from."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, httpcore.TimeoutException):
        return "no answer in time"
    return str(error) or str(error.__cause__ or "") or type(error).__name__


def reason_phrase(status: int) -> str:
    """Return a status for people: `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
