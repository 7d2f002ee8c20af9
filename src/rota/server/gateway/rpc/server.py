"""gRPC server for all services of a process: authentication, roles and errors of every call."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor

from rota.domain.errors import Denied, RotaError, Unavailable
from rota.operations.tokens import Caller
from rota.ports.rpc import MAX_MESSAGE, bearer_in, host_of_peer, rpc_status_of
from rota.server.gateway.auth import Need, TrustedTokens
from rota.server.gateway.problems import HIDDEN, MAX_DETAIL, retry_after
from rota.server.gateway.proxies import TrustedProxies
from rota.server.gateway.rpc.messages import problem_message, project_of

Service = Callable[[grpc.aio.Server], None]  # adds itself to a server

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.so_reuseport", 0),  # a second server on the same port has to fail, not to share it
    # Keepalive: a peer that vanished is noticed, and peers may ping this server just as often.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)
Context = grpc.aio.ServicerContext[Any, Any]

_log = structlog.get_logger("rota.server.gateway")


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Certificate and key by which peers know this server."""

    certificate: bytes  # PEM, with the chain
    key: bytes = field(repr=False)  # PEM


@dataclass(frozen=True, slots=True)
class RpcServer:
    """gRPC server that listens."""

    port: int
    _server: grpc.aio.Server

    async def close(self, grace: timedelta = timedelta(seconds=3)) -> None:
        """Accept no new calls, and give open ones this long to end."""
        await self._server.stop(grace.total_seconds())


async def serve(
    listen: str, services: Sequence[Service], tls: ServerTls | None = None
) -> RpcServer:
    """Listen at host:port (port 0: any free one) until closed.

    Raise `Unavailable` if the address is taken or not valid.
    """
    server = grpc.aio.server(options=_OPTIONS)
    for service in services:
        service(server)
    try:
        port = _bind(server, listen, tls)
    except RuntimeError as error:
        raise Unavailable(
            f"cannot listen for gRPC at {listen}",
            code="address_in_use",
            hint="is another server running there? ROTA_GRPC_LISTEN sets another address",
        ) from error
    await server.start()
    return RpcServer(port, server)


def _bind(server: grpc.aio.Server, listen: str, tls: ServerTls | None) -> int:
    if tls is None:
        return server.add_insecure_port(listen)
    credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
    return server.add_secure_port(listen, credentials)


class Guarded(Protocol):
    """Service whose calls are authenticated."""

    tokens: TrustedTokens
    proxies: TrustedProxies


S = TypeVar("S", bound=Guarded)
M = TypeVar("M", bound=Callable[..., Any])
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Handler = Callable[[S, Request, Caller], Awaitable[Answer]]
Method = Callable[[S, Request, Context], Awaitable[Answer]]


def needs(
    need: Need, *, takes_reports: bool = False
) -> Callable[[Handler[S, Request, Answer]], Method[S, Request, Answer]]:
    """Wrap a call for callers who have what it needs in the project of the request.

    One that `takes_reports` is also for whoever has the token of an attempt, and compares which.
    """

    def decorate(handler: Handler[S, Request, Answer]) -> Method[S, Request, Answer]:
        @functools.wraps(handler)
        async def method(service: S, request: Request, context: Context) -> Answer:
            began = time.perf_counter()
            caller: Caller | None = None
            try:
                caller = await known(service, context)
                request, project = await _with_project(request)
                if not (takes_reports and caller.reports):
                    await need.admit(service.tokens, caller, project)
                answer = await handler(service, request, caller)
            except Exception as error:  # noqa: BLE001 (the edge of a call)
                note(handler.__name__, caller, began, error)
                await refuse(context, error)
            note(handler.__name__, caller, began)
            return answer

        return declare(need)(method)

    return decorate


def declare(need: Need) -> Callable[[M], M]:
    """Declare what a call needs that checks it itself."""

    def decorate(method: M) -> M:
        method.need = need  # type: ignore[attr-defined]  # functions have any attribute
        return method

    return decorate


def check_declared(service: object, contract: ServiceDescriptor) -> None:
    """Raise `LookupError` if a call of a contract does not declare what it needs of its caller."""
    for call in contract.methods:
        if not isinstance(getattr(getattr(service, call.name), "need", None), Need):
            raise LookupError(f"{call.full_name} does not declare what it needs of its caller")


async def known(service: Guarded, context: Context) -> Caller:
    """Return the caller; raise `Denied` if nobody knows them."""
    return await service.tokens.caller_at(_address(service, context), _secret(context))


def _address(service: Guarded, context: Context) -> str:
    """Return where a call comes from, which a trusted proxy tells as it does of a request."""
    peer = host_of_peer(context.peer())
    if not service.proxies.trusts(peer):
        return peer
    texts = [
        (key.encode(), value.encode("latin-1", "replace"))
        for key, value in context.invocation_metadata() or ()
        if isinstance(value, str)
    ]
    return service.proxies.client_of(peer, texts)


async def _with_project(request: Any) -> tuple[Any, str]:
    """Return a request and its project, which a stream has in the header that comes first."""
    if not isinstance(request, AsyncIterator):
        return request, project_of(request.project)
    first = await anext(request, None)
    project = "" if first is None else first.header.project
    return _from(first, request), project_of(project)


async def _from(first: Any | None, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    if first is not None:
        yield first
    async for part in rest:
        yield part


def _secret(context: Context) -> str:
    if secret := bearer_in(context.invocation_metadata()):
        return secret
    raise Denied(
        "no credential came with the call",
        code="unauthenticated",
        hint="send the metadata `authorization: Bearer TOKEN`, made by rota token create",
    )


async def refuse(context: Context, error: Exception) -> NoReturn:
    """Abort a call with what its caller may know of an error."""
    told = error if isinstance(error, RotaError) else HIDDEN
    trailing: tuple[tuple[str, str | bytes], ...] = (
        ("rota-code", told.code),
        ("rota-problem-bin", problem_message(told).SerializeToString()),
    )
    if seconds := retry_after(told):
        trailing += (("retry-after", seconds),)
    await context.abort(grpc.StatusCode[rpc_status_of(told)], told.message[:MAX_DETAIL], trailing)


def note(method: str, caller: Caller | None, began: float, error: Exception | None = None) -> None:
    """Log one line for a call; above debug only if the server is at fault."""
    facts = {
        "method": method,
        "caller": caller.name if caller else None,
        "ms": round((time.perf_counter() - began) * 1_000, 2),
    }
    if error is None:
        _log.debug("call", status="OK", **facts)
    elif not isinstance(error, RotaError):
        _log.error("unexpected error", exc_info=error, **facts)
    else:
        status = rpc_status_of(error)
        is_our_fault = status in {"INTERNAL", "UNAVAILABLE"}
        (_log.warning if is_our_fault else _log.debug)(
            "call", status=status, code=error.code, **facts
        )
