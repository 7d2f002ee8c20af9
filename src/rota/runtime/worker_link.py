"""How the worker of this machine reaches its servers: a socket of the data folder, or gRPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rota.domain.errors import Invalid
from rota.ports.link import WorkerLink
from rota.runtime.backends import needing_extra
from rota.runtime.config import host_of, is_loopback

Connect = Callable[[], Awaitable[WorkerLink]]

TOKEN_VARIABLE = "ROTA_WORKER_TOKEN"  # noqa: S105 (where it is, not what it is)


def over_socket(path: Path) -> Connect:
    """The server on the same data folder."""
    from rota.adapters.link.local import LocalLink

    return lambda: LocalLink.connect(path)


def over_grpc(servers: Sequence[str], token: str, authorities: Path | None) -> Connect:
    """Whichever of the servers answers; in the clear only on loopback, and only if told nothing."""
    with needing_extra():
        from rota.adapters.link.grpc_client import ClientTls, GrpcAccess, GrpcConnector
    is_secure = authorities is not None or not all(is_loopback(host_of(it)) for it in servers)
    tls = ClientTls(_read(authorities)) if is_secure else None
    return GrpcConnector(GrpcAccess(tuple(servers), token, tls)).connect


def _read(authorities: Path | None) -> bytes | None:
    if authorities is None:
        return None
    try:
        return authorities.read_bytes()
    except OSError as error:
        raise Invalid(
            f"{authorities} cannot be read: {error.strerror}", hint="see ROTA_TLS_CA"
        ) from error
