"""The gRPC door: workers and programs, each where the roles have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rota.domain.errors import Invalid
from rota.gateway.settings import GatewaySettings
from rota.operations import tokens
from rota.operations.backends import Backends
from rota.ports.link import WorkerDesk
from rota.runtime.backends import needing_extra
from rota.runtime.config import host_of
from rota.runtime.settings import ServerRole, Settings
from rota.runtime.web import bind

if TYPE_CHECKING:
    from rota.adapters.link.grpc_server import WorkersService
    from rota.gateway.rpc.server import RpcServer, ServerTls


class RpcDoor:
    """A gRPC server that listens."""

    def __init__(self, listen: str, server: RpcServer, workers: WorkersService | None) -> None:
        self.listen = listen
        self._server = server
        self._workers = workers

    async def close(self) -> None:
        """Send workers to other servers, and let calls that are under way end."""
        if self._workers is not None:
            self._workers.close()
        await self._server.close()


@asynccontextmanager
async def open_rpc(
    settings: Settings, backends: Backends, desk: WorkerDesk | None, gateway: GatewaySettings
) -> AsyncIterator[RpcDoor | None]:
    """None where the settings have no gRPC, or the roles nothing to offer by it."""
    is_gateway = ServerRole.GATEWAY in settings.roles
    if not settings.grpc_listen or not (is_gateway or desk):
        yield None
        return
    with needing_extra():
        from rota.adapters.link.grpc_server import WorkersService
        from rota.gateway.rpc.carts import CartsService
        from rota.gateway.rpc.scheduler import SchedulerService
        from rota.gateway.rpc.server import serve
    workers = WorkersService(desk, partial(tokens.authenticate_worker, backends)) if desk else None
    services = [workers.add_to] if workers else []
    if is_gateway:
        services.append(SchedulerService(backends, gateway).add_to)
        services.append(CartsService(backends, gateway).add_to)
    bind(settings.grpc_listen, "ROTA_GRPC_LISTEN").close()  # gRPC would not say why it cannot
    server = await serve(settings.grpc_listen, services, _tls(settings))
    door = RpcDoor(f"{host_of(settings.grpc_listen)}:{server.port}", server, workers)
    try:
        yield door
    finally:
        await door.close()


def _tls(settings: Settings) -> ServerTls | None:
    from rota.gateway.rpc.server import ServerTls

    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerTls(_read(settings.tls_cert), _read(settings.tls_key))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", code="bad_settings") from error
