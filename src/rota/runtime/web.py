"""The gateway's door: HTTP, with TLS where a certificate is given."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI

from rota.domain.errors import Conflict, Invalid, Unavailable
from rota.runtime.config import host_of, port_of
from rota.runtime.settings import Settings

_KEEP_ALIVE_SECONDS = 75  # longer than clients and proxies keep an idle connection themselves
_BACKLOG = 2048
_FINISH_SECONDS = 2  # what open requests get at a stop


class WebServer(uvicorn.Server):
    """Uvicorn without its own idea of signals: stopping is the server's business."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_FINISH_SECONDS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            server_header=False,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        with _told_of_certificate(settings):
            config.load()
        super().__init__(config)

    async def serve(self, listener: socket.socket) -> None:  # type: ignore[override]
        await super().serve([listener])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _told_of_certificate(settings: Settings) -> Iterator[None]:
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
    """The listening socket, opened before anything is started. `Conflict` if the port is taken."""
    host = host_of(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port_of(listen)))
        listener.listen(_BACKLOG)  # whoever is told the address finds it open, if only to wait
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
    """Where others reach it: a host that means every address is told by its name."""
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
