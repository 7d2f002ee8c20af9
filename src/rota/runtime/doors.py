"""Listeners of a server: HTTP with TLS where a certificate is given, and gRPC."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI

from rota.domain.errors import Conflict, Invalid, Unavailable
from rota.operations.credentials import Credentials
from rota.operations.engine import Engine
from rota.ports.work import WorkerDesk
from rota.runtime.backends import needing_extra
from rota.runtime.config import host_of, port_of
from rota.runtime.settings import ServerRole, Settings
from rota.server.gateway.auth import TrustedTokens
from rota.server.gateway.parameters import GatewaySettings

_KEEP_ALIVE_SECONDS = 75  # longer than clients and proxies keep an idle connection themselves
_BACKLOG = 2048
_FINISH_SECONDS = 2  # what open requests get at a stop


class WebServer(uvicorn.Server):
    """Uvicorn without its signal handlers: the server decides when to stop."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_FINISH_SECONDS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            server_header=False,
            proxy_headers=False,  # whom to believe is decided by `gateway.proxies`
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        with _explain_certificate_errors(settings):
            config.load()
        super().__init__(config)

    async def serve(self, listener: socket.socket) -> None:  # type: ignore[override]
        await super().serve([listener])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _explain_certificate_errors(settings: Settings) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        raise Invalid(
            f"the certificate {settings.tls_cert} with the key {settings.tls_key}"
            f" cannot be used: {error}",
            code="bad_settings",
            hint="tls_cert and tls_key are PEM files of one certificate and its key",
        ) from error


def bind(listen: str, variable: str = "ROTA_LISTEN") -> socket.socket:
    """Bind the listening socket before anything is started; `Conflict` if the port is taken."""
    host = host_of(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port_of(listen)))
        listener.listen(_BACKLOG)  # clients that know the address can connect, and wait
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"{listen} is already in use",
                code="port_taken",
                hint=f"stop what listens there, or choose another: {variable}=127.0.0.1:7702",
            ) from error
        raise Unavailable(f"cannot listen on {listen}: {error.strerror}") from error
    return listener


def url_of(settings: Settings, listener: socket.socket) -> str:
    """Return the URL for others: for a wildcard address, the host's name."""
    scheme = "https" if settings.is_secure else "http"
    host = host_of(settings.listen)
    if _is_every_address(host):
        host = settings.server_name or socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{listener.getsockname()[1]}"


def _is_every_address(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"


@contextmanager
def without_fork_handlers() -> Iterator[None]:
    """Import gRPC so that it leaves alone the processes which this one starts.

    Otherwise it starts its threads again in each of them, between fork and exec, where some crash:
    the child then dies before its program begins. gRPC reads the variable when it is imported.
    """
    before = os.environ.get(_FORK_SUPPORT)
    os.environ[_FORK_SUPPORT] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORK_SUPPORT]
        else:
            os.environ[_FORK_SUPPORT] = before


if TYPE_CHECKING:
    from rota.link.grpc_server import WorkersService
    from rota.server.gateway.rpc.server import RpcServer, ServerTls


class RpcDoor:
    """gRPC server that listens."""

    def __init__(self, listen: str, server: RpcServer, workers: WorkersService | None) -> None:
        self.listen = listen
        self._server = server
        self._workers = workers

    async def close(self) -> None:
        """Send workers to other servers, and let open calls end."""
        if self._workers is not None:
            self._workers.close()
        await self._server.close()


@asynccontextmanager
async def open_rpc(
    settings: Settings, engine: Engine, desk: WorkerDesk | None, app: FastAPI
) -> AsyncIterator[RpcDoor | None]:
    """Open gRPC; None where the settings have none, or the roles offer nothing by it.

    It shares the tokens that the app trusts: one that is revoked there is refused here at once.
    """
    is_gateway = ServerRole.GATEWAY in settings.roles
    if not settings.grpc_listen or not (is_gateway or desk):
        yield None
        return
    with needing_extra(), without_fork_handlers():
        from rota.link.grpc_server import WorkersService
        from rota.server.gateway.rpc.carts import CartsService
        from rota.server.gateway.rpc.scheduler import SchedulerService
        from rota.server.gateway.rpc.server import serve
    # Counted with those of people and programs: whoever guesses has one bound on all ways in.
    credentials = Credentials(engine, wrong=app.state.wrong_secrets)
    workers = WorkersService(desk, credentials) if desk else None
    services = [workers.add_to] if workers else []
    if is_gateway:
        gateway: GatewaySettings = app.state.settings
        trusted: TrustedTokens = app.state.tokens
        parsing, streams = app.state.parsing, app.state.streams
        services.append(SchedulerService(engine, gateway, trusted, parsing, streams).add_to)
        services.append(CartsService(engine, gateway, trusted, parsing).add_to)
    bind(settings.grpc_listen, "ROTA_GRPC_LISTEN").close()  # gRPC would not say why it cannot
    server = await serve(settings.grpc_listen, services, _tls(settings))
    door = RpcDoor(f"{host_of(settings.grpc_listen)}:{server.port}", server, workers)
    try:
        yield door
    finally:
        await door.close()


def _tls(settings: Settings) -> ServerTls | None:
    from rota.server.gateway.rpc.server import ServerTls

    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerTls(_read(settings.tls_cert), _read(settings.tls_key))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", code="bad_settings") from error
