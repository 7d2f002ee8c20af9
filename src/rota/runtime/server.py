"""One server: store, queue, blobs, and the roles that work on them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvicorn

from rota.adapters.blobs.files import open_files
from rota.adapters.clock import SystemClock
from rota.adapters.link.local import LocalLinkServer
from rota.adapters.queue.local import LocalQueue
from rota.adapters.store.sqlite.opening import open_sqlite
from rota.dispatcher.floor import Floor, FloorConfig
from rota.domain.errors import Conflict, Denied, Unavailable
from rota.domain.jobfile import JobFile, read_file
from rota.gateway.app import create_app
from rota.gateway.settings import GatewaySettings
from rota.operations import definitions, tokens
from rota.operations.backends import Backends
from rota.ports.records import Role
from rota.runtime.config import Settings
from rota.runtime.guarded_worker import GuardedWorker
from rota.runtime.paths import client_file, worker_socket
from rota.runtime.supervision import Service, supervise
from rota.scheduler.congestion_watch import CongestionWatch
from rota.scheduler.sweeper import LeaseReaper, Sweeper
from rota.scheduler.timekeeper import Timekeeper

log = structlog.get_logger()

_KEEP_ALIVE_SECONDS = 75  # longer than clients and proxies keep an idle connection themselves


@asynccontextmanager
async def open_backends(settings: Settings, *, exclusive: bool) -> AsyncIterator[Backends]:
    """The store, queue and blob store these settings name."""
    store = await open_sqlite(settings.store_path, exclusive=exclusive)
    try:
        async with await open_files(settings.blobs_path) as blobs:
            queue = LocalQueue()
            yield Backends(store, queue, blobs)
            await queue.close()
    finally:
        await store.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up."""

    url: str
    login_url: str
    applied: tuple[definitions.Plan, ...]


class Server:
    """All roles in one process, with a guarded worker beside it."""

    def __init__(self, settings: Settings, files: Sequence[Path] = ()) -> None:
        self._settings = settings
        self._files = files
        self._stop = asyncio.Event()
        self._clock = SystemClock()
        self._worker = GuardedWorker(settings, self._clock)

    def stop(self) -> None:
        """Finish what runs within the grace, then end. Called again: do not wait for that."""
        if self._stop.is_set():
            self._worker.kill()
        self._stop.set()

    async def run(self, on_ready: asyncio.Future[Running]) -> None:
        """Serve until stopped; `on_ready` is told when everything is up."""
        job_files = [read_job_file(path) for path in self._files]
        # First the data, then the port: who starts it twice shall hear that it already runs.
        async with open_backends(self._settings, exclusive=True) as backends:
            listener = bind(self._settings)
            url = f"http://{_shown_host(self._settings.host)}:{listener.getsockname()[1]}"
            floor = Floor(backends, FloorConfig(lease=self._settings.lease))
            link = LocalLinkServer(floor, worker_socket(self._settings.home))
            await link.open()
            try:
                await self._serve(backends, floor, listener, url, job_files, on_ready)
            finally:
                await link.close()
                client_file(self._settings.home).unlink(missing_ok=True)

    async def _serve(
        self,
        backends: Backends,
        floor: Floor,
        listener: socket.socket,
        url: str,
        job_files: Sequence[JobFile],
        on_ready: asyncio.Future[Running],
    ) -> None:
        plans = [await definitions.apply(backends, file, actor="rota up") for file in job_files]
        gateway = _Gateway(backends, url)
        services: list[Service] = [
            Timekeeper(backends, self._clock),
            Sweeper(backends, self._clock),
            LeaseReaper(backends, self._clock),
            CongestionWatch(backends, self._clock),
            floor,
            self._worker,
        ]
        async with asyncio.TaskGroup() as group:
            engine = group.create_task(supervise(services, self._clock))
            web = group.create_task(gateway.serve(listener))
            await write_client_file(backends, self._settings, url)
            secret = await tokens.create_login_link_secret(backends.store, actor="rota up")
            on_ready.set_result(Running(url, f"{url}/login?token={secret}", tuple(plans)))
            await self._stop.wait()
            log.info("server.stopping")
            await self._worker.stop()
            gateway.should_exit = True
            await web
            engine.cancel()


class _Gateway(uvicorn.Server):
    """Uvicorn without its own idea of signals: stopping is the server's business."""

    def __init__(self, backends: Backends, url: str) -> None:
        app = create_app(backends, GatewaySettings(base_url=url))
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=2,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                server_header=False,
            )
        )

    async def serve(self, listener: socket.socket) -> None:  # type: ignore[override]
        await super().serve([listener])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(settings: Settings) -> socket.socket:
    """The listening socket, bound before anything is started. `Conflict` if the port is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"{settings.listen} is already in use",
                code="port_taken",
                hint="stop what listens there, or choose another: ROTA_LISTEN=127.0.0.1:7701",
            ) from error
        raise Unavailable(f"cannot listen on {settings.listen}: {error.strerror}") from error
    return listener


def read_job_file(path: Path) -> JobFile:
    """A job file from disk."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from error
    return read_file(text, name=path.stem)


async def write_client_file(backends: Backends, settings: Settings, url: str) -> None:
    """Let the CLI and SDK of the same user find this server; keeps a token that still works."""
    path = client_file(settings.home)
    secret = await _kept_token(backends, settings.home / "local.token")
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"url": url, "token": secret, "pid": os.getpid()}, file)
    temporary.replace(path)


async def _kept_token(backends: Backends, path: Path) -> str:
    with contextlib.suppress(OSError, Denied):
        secret = _read(path)
        await tokens.authenticate(backends, secret)
        return secret
    _, secret = await tokens.create_token(
        backends.store, name="local", role=Role.ADMIN, actor="rota up"
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret)
    return secret


def _read(path: Path) -> str:
    return path.read_text("utf-8").strip()


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def stop_on_signals(server: Server) -> None:
    """TERM and Ctrl-C stop cleanly; a second one does not wait."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
