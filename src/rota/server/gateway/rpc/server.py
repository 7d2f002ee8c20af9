"""One gRPC server for all services of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import grpc

from rota.domain.errors import Unavailable
from rota.ports.link import MAX_MESSAGE

Service = Callable[[grpc.aio.Server], None]  # adds itself to a server

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.so_reuseport", 0),  # a second server on the same port has to fail, not to share it
    # A peer that vanished without a word is noticed, and peers may look after us just as often.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How peers know this server."""

    certificate: bytes  # PEM, with the chain
    key: bytes = field(repr=False)  # PEM


@dataclass(frozen=True, slots=True)
class RpcServer:
    """A server that listens."""

    port: int
    _server: grpc.aio.Server

    async def close(self, grace: timedelta = timedelta(seconds=3)) -> None:
        """Take no new calls, and give those under way this long to end."""
        await self._server.stop(grace.total_seconds())


async def serve(
    listen: str, services: Sequence[Service], tls: ServerTls | None = None
) -> RpcServer:
    """Listen at host:port (port 0: any that is free) until closed.

    `Unavailable` if the address is taken or is none.
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
