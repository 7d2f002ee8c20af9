"""Server process: store, queue, blobs, and the roles that work on them."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog
import uvloop
from fastapi import FastAPI

from rota import __version__
from rota.clock import SystemClock
from rota.domain.errors import Unavailable
from rota.domain.ids import new_server_id
from rota.domain.jobfile import JobFile, read_file
from rota.domain.spec import Isolation
from rota.domain.walls import NEW_CLUSTER, NEW_MACHINE, WallDefaults
from rota.operations import definitions
from rota.operations.engine import Engine
from rota.ports.clock import AlarmClock
from rota.ports.records import NewServer
from rota.runtime import supervision
from rota.runtime.backends import (
    BlobProbe,
    ProviderProbe,
    open_backends,
    open_store,
    open_with_retries,
    unless_stopped,
)
from rota.runtime.doors import RpcDoor, WebServer, bind, open_rpc, url_of
from rota.runtime.home import secure_home
from rota.runtime.key_ring import KeyRingRenewal, make_key_ring
from rota.runtime.machine import Machine, new_login_link
from rota.runtime.settings import DEFAULT_GRPC_LISTEN, HTTPS, ServerRole, Settings
from rota.runtime.supervision import Service, supervise, ungrouped_errors
from rota.server.dispatcher.floor import Floor, FloorConfig
from rota.server.gateway.app import create_app
from rota.server.gateway.pages import Readiness
from rota.server.gateway.parameters import GatewaySettings
from rota.server.scheduler.carts import CartKeeper, DueTemplates
from rota.server.scheduler.external import Announcer, ExternalKeeper
from rota.server.scheduler.releaser import (
    Follower,
    KeyKeeper,
    Prober,
    Releaser,
    Sweeper,
    WorkerWatch,
)
from rota.server.scheduler.shards import HeldShards, ShardKeeper
from rota.server.scheduler.timekeeper import Timekeeper, TimekeeperConfig, grace_of
from rota.server.scheduler.watches import (
    CongestionWatch,
    FileCollector,
    LeaseReaper,
    Rewrapper,
    StartPredictor,
)
from rota.store.store import SqlStore


class Roles:
    """Roles of this server besides answering requests."""

    def __init__(self, settings: Settings, engine: Engine, clock: AlarmClock, url: str) -> None:
        self._settings = settings
        self._engine = engine
        self._clock = clock
        server = _introduction(settings, url)
        self._held = HeldShards(server.id, clock)
        self._keeper = ShardKeeper(engine, clock, server, self._held)
        self.is_stopping = False
        self.floor: Floor | None = None
        if ServerRole.DISPATCHER in settings.roles:
            self.floor = Floor(engine, FloorConfig(lease=settings.lease), server=server.id)

    def services(self) -> Sequence[Service]:
        """List all loops, to be supervised together."""
        scheduler = self._scheduler() if ServerRole.SCHEDULER in self._settings.roles else []
        return [self._keeper, *scheduler, *([self.floor] if self.floor else [])]

    def _scheduler(self) -> list[Service]:
        return [
            Timekeeper(self._engine, self._clock, self._held, self._punctuality()),
            Releaser(self._engine, self._clock, self._held),
            CartKeeper(self._engine, self._held),
            Follower(self._engine, self._held),
            Prober(self._engine, self._held),
            WorkerWatch(self._engine, self._held),
            KeyKeeper(self._engine, self._held),
            DueTemplates(self._engine, self._held),
            Sweeper(self._engine, self._clock, self._held),
            LeaseReaper(self._engine, self._clock),
            CongestionWatch(self._engine, self._clock, self._held),
            StartPredictor(self._engine, self._clock, self._held),
            Rewrapper(self._engine, self._clock, self._held),
            FileCollector(self._engine, self._clock, self._held),
            ExternalKeeper(self._engine, self._clock),
            Announcer(self._engine, self._clock),
        ]

    def _punctuality(self) -> TimekeeperConfig:
        if self._settings.is_alone:
            return TimekeeperConfig()
        return TimekeeperConfig(grace=grace_of(self._settings.renewed_within))

    def hindrance(self) -> str:
        """Return what keeps this server from its roles; "" when nothing does."""
        if self.is_stopping:
            return "this server is stopping"
        return "" if self._held.is_current else "this server has no lease in the cluster"

    async def hand_over(self) -> None:
        """Release all shards, so that other servers fire from here on."""
        await self._keeper.hand_over()

    async def stop_claiming(self) -> None:
        """Stop claiming; return when all claimed work was sent to its workers, or after a grace."""
        if self.floor is not None:
            await self.floor.retire()

    async def leave(self) -> None:
        """End the server's lease; nothing of `services` may run any more."""
        await self._keeper.leave()


def _introduction(settings: Settings, url: str) -> NewServer:
    return NewServer(
        id=new_server_id(),
        name=settings.server_name or socket.gethostname(),
        lease=settings.renewed_within,
        roles=tuple(settings.roles),
        url=url,
        zone=settings.zone,
        version=__version__,
        is_alone=settings.is_alone,
    )


log = structlog.get_logger()

_ARRIVING = timedelta(milliseconds=300)  # for messages in transit to workers when a server stops


@dataclass(frozen=True, slots=True)
class Running:
    """Addresses of a server that is up."""

    url: str  # where people reach it
    grpc_listen: str = ""  # "": no gRPC
    login_url: str = ""  # "": people log in with a token
    new_key_ring: Path | None = None  # made at this start
    applied: tuple[definitions.Plan, ...] = ()
    walls: WallDefaults = WallDefaults()  # of jobs that ask for none


class Server:
    """Roles of one server process, and optionally the rest of a `Machine` around it."""

    def __init__(
        self, settings: Settings, files: Sequence[Path] = (), machine: Machine | None = None
    ) -> None:
        self._settings = settings
        self._files = files
        self._machine = machine
        self._stop = asyncio.Event()
        self._clock = SystemClock()
        self._renewal: KeyRingRenewal | None = None

    def renew_keys(self) -> None:
        """Load the key ring again, where there is a running server."""
        if self._renewal is not None:
            self._renewal.ask()

    def stop(self) -> None:
        """Finish running attempts within the grace, then end. A second call does not wait."""
        if self._stop.is_set() and self._machine is not None:
            self._machine.worker.kill()
        self._stop.set()

    async def run(self, on_ready: asyncio.Future[Running]) -> None:
        """Serve until stopped; `on_ready` is called when everything is up."""
        job_files = [read_job_file(path) for path in self._files]
        # First the data, then the port: a second start must report that Rota already runs.
        store = await self._open_store()
        if store is None:
            return
        async with open_backends(self._settings, store) as engine:
            with closing(bind(self._settings.listen)) as listener:
                await self._serve(engine, listener, job_files, on_ready)

    async def _open_store(self) -> SqlStore | None:
        """Open the store; None: it was stopped while the store was away."""
        open_once = partial(open_store, self._settings, exclusive=True)
        return await unless_stopped(open_with_retries(open_once, self._clock), self._stop)

    async def _serve(
        self,
        engine: Engine,
        listener: socket.socket,
        job_files: Sequence[JobFile],
        on_ready: asyncio.Future[Running],
    ) -> None:
        url = url_of(self._settings, listener)
        site = self._settings.public_url or url
        engine = replace(engine, outside=replace(engine.outside, site=site))
        await engine.store.bind_admin_groups(
            self._settings.oidc_issuer, frozenset(self._settings.oidc_admin_groups)
        )
        walls = await engine.store.settle_walls(self._new_walls)
        plans = [
            # The worker that says which types it has is started after this.
            await definitions.apply(
                engine, file, actor="rota up", is_admin=True, has_new_types=True
            )
            for file in job_files
        ]
        roles = Roles(self._settings, engine, self._clock, url)
        gateway = GatewaySettings(
            base_url=site,
            public_url=self._settings.public_url,
            issuer=self._settings.oidc_issuer,
            trusted_proxies=self._settings.trusted_proxies,
            secure_cookies=site.startswith(HTTPS),
            max_streams=self._settings.max_streams,
            max_streams_per_caller=self._settings.max_streams_per_caller,
        )
        app = self._app(engine, roles, gateway)
        web = WebServer(app, self._settings)
        async with self._doors(engine, roles, app) as rpc, asyncio.TaskGroup() as group:
            services = [*self._services(engine, roles), app.state.tokens]
            loops = group.create_task(supervise(services, self._clock))
            answering = group.create_task(web.serve(listener))
            listen = rpc.listen if rpc else ""
            running = Running(site, listen, applied=tuple(plans), walls=walls)
            on_ready.set_result(await self._introduced(engine, url, running))
            await self._stop.wait()
            log.info("server.stopping")
            await self._stop_in_order(roles, rpc)
            web.should_exit = True
            await answering
            loops.cancel()
        with suppress(Unavailable):  # else the others wait for the end of its lease
            await roles.leave()

    @property
    def _new_walls(self) -> WallDefaults:
        """Walls of jobs that ask for none, in a store that is new."""
        match self._settings.default_isolation, self._machine:
            case (Isolation.SANDBOX, _) | ("", None):
                return NEW_CLUSTER
            case _:
                return NEW_MACHINE

    async def _introduced(self, engine: Engine, url: str, running: Running) -> Running:
        """Tell the user's programs where this server is; `url` is its address on this machine."""
        if self._machine is None:
            return running
        await self._machine.introduce(engine, url)
        return replace(
            running,
            login_url=await new_login_link(engine.store, running.url),
            new_key_ring=self._machine.new_key_ring,
        )

    @asynccontextmanager
    async def _doors(
        self, engine: Engine, roles: Roles, app: FastAPI
    ) -> AsyncIterator[RpcDoor | None]:
        """Open the listeners for workers and programs, besides HTTP."""
        async with AsyncExitStack() as doors:
            doors.push_async_callback(app.state.parsing.close)
            rpc = await doors.enter_async_context(
                open_rpc(self._settings, engine, roles.floor, app)
            )
            if self._machine is not None and roles.floor is not None:
                await doors.enter_async_context(self._machine.door(roles.floor))
            yield rpc

    def _services(self, engine: Engine, roles: Roles) -> list[Service]:
        worker = [self._machine.worker] if self._machine else []
        self._renewal = KeyRingRenewal(self._settings, engine.key_ring)
        probes: list[Service] = [BlobProbe(engine.blobs), ProviderProbe(engine.logins.provider)]
        return [*roles.services(), *probes, self._renewal, *worker]

    def _app(self, engine: Engine, roles: Roles, gateway: GatewaySettings) -> FastAPI:
        return create_app(
            engine,
            gateway,
            Readiness(engine, hindrance=roles.hindrance),
            has_api=ServerRole.GATEWAY in self._settings.roles,
        )

    async def _stop_in_order(self, roles: Roles, rpc: RpcDoor | None) -> None:
        """Hand over first what other servers can take; a single server fires until the end."""
        roles.is_stopping = True
        if not self._settings.is_alone:
            with suppress(Unavailable):
                await roles.hand_over()
        await roles.stop_claiming()
        if self._machine is not None:
            await self._machine.worker.stop()
        if rpc is not None:
            # A worker that writes while its stream ends does not read what was sent before.
            await self._clock.sleep(_ARRIVING)
            await rpc.close()


def read_job_file(path: Path) -> JobFile:
    """Read a job file from disk."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from error
    return read_file(text, name=path.stem)


def stop_on_signals(server: Server) -> None:
    """Stop cleanly on TERM and Ctrl-C; a second signal does not wait. HUP renews the key ring."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    if sys.stdin is None or not sys.stdin.isatty():  # else it means that the terminal was closed
        loop.add_signal_handler(signal.SIGHUP, server.renew_keys)


OnReady = Callable[[Running], None]

# The threads of SQLite let go of the interpreter at every row. With Python's own 5 ms until they
# get it back from a busy event loop, writing a hundred rows can take as many milliseconds.
_SWITCH_SECONDS = 0.0001


def run_machine(settings: Settings, files: Sequence[Path], on_ready: OnReady) -> None:
    """Run `rota up`: a server with all roles and a worker; errors of the start are raised."""
    secure_home(settings.home)
    everything = replace(settings, roles=tuple(ServerRole))
    new_ring = make_key_ring(settings)
    _run(
        settings,
        on_ready,
        lambda: Server(everything, files, Machine(settings, SystemClock(), new_ring)),
    )


def run_server(settings: Settings, on_ready: OnReady) -> None:
    """Run `rota server`: one of any number of servers; errors of the start are raised."""
    if settings.needs_home:
        secure_home(settings.home)
    listening = replace(settings, grpc_listen=settings.grpc_listen or DEFAULT_GRPC_LISTEN)
    _run(settings, on_ready, lambda: Server(listening))


def _run(settings: Settings, on_ready: OnReady, make: Callable[[], Server]) -> None:
    supervision.set_up(settings.log_level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with ungrouped_errors():
        uvloop.run(_serve(make, on_ready))


async def _serve(make: Callable[[], Server], on_ready: OnReady) -> None:
    server = make()
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    ready.add_done_callback(
        lambda future: None if future.cancelled() else _announce(future.result(), on_ready)
    )
    stop_on_signals(server)
    await server.run(ready)


def _announce(running: Running, on_ready: OnReady) -> None:
    # All that there is now stays: to search it for garbage again and again would hold up whatever
    # is due for 60 ms each time.
    gc.collect()
    gc.freeze()
    on_ready(running)
