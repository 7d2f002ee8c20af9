"""Worker process: composed here, started by the guardian, never by a person."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvloop

from rota import __version__
from rota.clock import SystemClock
from rota.domain.errors import RotaError, Unavailable
from rota.domain.files import FILES
from rota.domain.resources import HTTP_SLOTS, UNIT
from rota.domain.spec import JobType
from rota.domain.walls import PROBES, OfferKind
from rota.executors.http import HttpExecutor, HttpGround
from rota.executors.http_secrets import WorkerSecret, WorkerSecrets, read_secrets
from rota.executors.shell import ShellExecutor
from rota.executors.source import Mirrors, Sources
from rota.guardian.namespace import Mode
from rota.guardian.options import ExitCode
from rota.outgoing import Outgoing
from rota.plugins import Place
from rota.ports.executor import Executor
from rota.ports.work import Fence, Hello, JobTypeNote, Offer, WorkerLink
from rota.runtime import supervision
from rota.runtime.containers import (
    OPENED_WITHIN,
    ContainerPlace,
    Containers,
    open_containers,
)
from rota.runtime.credentials import (
    TOKEN_VARIABLE,
    Connect,
    CredentialFile,
    over_grpc,
    over_socket,
)
from rota.runtime.home import worker_folder, worker_socket
from rota.runtime.plugins import Brought, bring_classes, bring_plugins
from rota.runtime.sources import as_option as sources_as_option
from rota.runtime.sources import from_option as sources_from_option
from rota.runtime.supervision import ungrouped_errors
from rota.runtime.walls import (
    HttpSettings,
    as_option,
    containers_as_option,
    containers_from_option,
    from_option,
    http_as_option,
    http_from_option,
)
from rota.runtime.worker import is_final, leave_note, leave_refusal
from rota.sources.wish import SourceSettings
from rota.walls import disk
from rota.walls.container import ContainerSettings
from rota.walls.enclosing import Walls, WallSettings
from rota.walls.probe import Prober
from rota.walls.rooms import RUN, Rooms, reachable
from rota.worker.attempts import Attempts
from rota.worker.files import LinkedFiles
from rota.worker.guard import Guard, KeeperConnection
from rota.worker.session import SessionConfig, WorkerSession
from rota.worker.spool import OutputDeliverer, OutputSpool

if TYPE_CHECKING:
    from rota.executors.container import ContainerExecutor

_STARTING = timedelta(seconds=60)  # the app's import may take its time before the first lease
_ROOT = Path("/")
_MEBIBYTE = 1024 * 1024
_CGROUPS = Path("sys/fs/cgroup")

log = structlog.get_logger()


def offered(declared: Mapping[str, int], root: Path = _ROOT) -> dict[str, int]:
    """Return thousandths by name: as declared, else the cores and memory that may be used."""
    groups = list(_groups(root))
    return {"cpu": _cpu(groups), "memory": _memory(groups) * UNIT, **declared}


def _cpu(groups: list[Path]) -> int:
    """Return thousandths of a core."""
    cores = [len(os.sched_getaffinity(0)) * UNIT]
    for group in groups:
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            cores.append(int(quota) * UNIT // int(period))
    return min(cores)


def _memory(groups: list[Path]) -> int:
    """Return bytes, rounded to MiB for readers."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for group in groups:
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _read(group / name)
            if limit.isdecimal():
                sizes.append(int(limit))
    return min(sizes) // _MEBIBYTE * _MEBIBYTE


def _groups(root: Path) -> Iterator[Path]:
    """Yield the control groups of this process, of version 2 or 1, and their parents."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or controllers == "memory":
            top = root / _CGROUPS / controllers
            own = top / path.lstrip("/")
            yield from (group for group in (own, *own.parents) if group.is_relative_to(top))


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def main() -> None:
    options = _parse()
    supervision.set_up(options.log_level)
    try:
        with ungrouped_errors():
            uvloop.run(_run(options))
    except (OSError, RotaError) as error:
        sys.exit(_end_with(error, worker_folder(options.home, options.worker_name)))


def _end_with(error: OSError | RotaError, folder: Path) -> int:
    """Return the exit code; a final error is left for the launcher, which reports it once."""
    if isinstance(error, RotaError) and is_final(error):
        leave_refusal(folder, error)
        return ExitCode.WORKER_REFUSED
    log.error("worker.failed", error=str(error))
    return 1


async def _run(options: argparse.Namespace) -> None:
    folder = worker_folder(options.home, options.worker_name)
    guard = Guard(
        socket.socket(fileno=int(os.environ["ROTA_GUARDIAN_FD"])),
        int(os.environ["ROTA_GUARDIAN_KILL_FD"]),
    )
    credential = _own_credential(options, folder)
    worker = _Worker(options, folder, guard, _connect(options, credential), credential)
    try:
        await worker.run(await guard.greet())
    finally:
        guard.close()


def _own_credential(options: argparse.Namespace, folder: Path) -> CredentialFile | None:
    """Return the credential of a worker that has joined; None: it shows a token, or nothing."""
    if not options.server or os.environ.get(TOKEN_VARIABLE):
        return None
    credential = CredentialFile(folder)
    credential.load()
    return credential


def _connect(options: argparse.Namespace, credential: CredentialFile | None) -> Connect:
    token = os.environ.pop(TOKEN_VARIABLE, "")  # functions and jobs inherit what is left
    if not options.server:
        return over_socket(worker_socket(options.home))
    shown = token if credential is None else lambda: credential.token
    return over_grpc(options.server, shown, options.tls_ca)


class _Worker:
    """Session, attempts and executors, wired together."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        guard: Guard,
        connect: Connect,
        credential: CredentialFile | None,
    ) -> None:
        self._options = options
        self._folder = folder
        self._connect = connect
        self._credential = credential
        self._guard = guard
        self._clock = SystemClock()
        self._attempts = Attempts(self._clock, OutputSpool(folder / "output"))
        self._executors: dict[str, Executor] = {}
        self._containers: ContainerExecutor | None = None
        self._session: WorkerSession | None = None
        self._sources: Sources | None = None
        self._files = LinkedFiles(self._serving, self._clock)

    def _serving(self) -> tuple[WorkerLink, tuple[str, ...]]:
        """Return the connection, and what its server answers; raise `Unavailable` without one."""
        if self._session is None:
            raise Unavailable("not connected to a server")
        return self._session.serving()

    async def run(self, guard_mode: str) -> None:
        """Serve until told to stop."""
        # Before there is a lease to renew: starting this takes a while, and starts processes.
        self._prolong(OPENED_WITHIN)
        walls, containers = await asyncio.gather(
            self._build_walls(guard_mode), self._open_containers()
        )
        self._prolong(_STARTING)
        http = self._open_http()
        if self._containers is not None:
            self._containers.sources = self._sources
        brought = Brought()
        await bring_plugins(brought, self._options.executors, self._place_of_plugins())
        functions = await self._serve_functions(brought) if self._options.app else ()
        self._executors |= brought.executors
        self._attempts.serve_with(self._executors)
        self._attempts.spool.open()
        self._session = session = WorkerSession(
            self._connect,
            self._attempts,
            self._hello(
                functions,
                guard_mode,
                (*walls, *containers.offers, *http, *brought.offers),
                containers.is_swept,
                tuple(brought.notes),
            ),
            self._guard,
            self._clock,
            SessionConfig(stop_grace=timedelta(seconds=self._options.stop_grace)),
            note_session=self._note,
            credential=self._credential,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, session.stop)
        async with asyncio.TaskGroup() as group:
            deliverer = OutputDeliverer(
                self._attempts.spool, session.send_output, connection=lambda: session.connection
            )
            delivering = group.create_task(deliverer.run())
            watching = group.create_task(self._watch_disk(session))
            gc.collect()
            gc.freeze()  # objects of the start stay: collecting them would only delay work
            await session.run()
            delivering.cancel()
            watching.cancel()
        for executor in self._executors.values():
            await executor.close()
        if self._sources is not None:
            self._sources.close()

    def _prolong(self, duration: timedelta) -> None:
        self._guard.prolong(self._clock.monotonic() + duration.total_seconds())

    async def _watch_disk(self, session: WorkerSession) -> None:
        """Take nothing new while there is too little space left."""
        floor = from_option(self._options.walls).disk_floor
        while True:
            lack = disk.shortage(self._folder, floor)
            if bool(lack) != bool(self._attempts.shortage):
                log.warning("worker.short_of_disk" if lack else "worker.has_disk", reason=lack)
                session.beat_now()
            self._attempts.shortage = lack
            await self._clock.sleep(disk.LOOK_EVERY)

    async def _build_walls(self, guard_mode: str) -> tuple[Offer, ...]:
        """Try which walls there are, and let commands be executed behind them."""
        settings = from_option(self._options.walls)
        may_mount = guard_mode == Mode.NAMESPACE
        rooms = Rooms(self._folder / "rooms", settings.uids, may_mount=may_mount)
        walls = Walls(settings, self._guard, rooms)
        offers = await Prober(walls, self._guard).probe()
        self._sources = self._open_sources(walls, may_mount=may_mount)
        self._executors[JobType.SHELL] = ShellExecutor(
            self._attempts,
            self._guard,
            self._clock,
            self._folder / "work",
            walls,
            self._files,
            self._sources,
        )
        return offers

    def _open_sources(self, walls: Walls, *, may_mount: bool) -> Sources:
        """Make what brings code and files into the folders of attempts."""
        settings = sources_from_option(self._options.sources)
        root, scratch = self._folder / "mirrors", self._folder / "scratch"
        for folder in (root, scratch):
            folder.mkdir(exist_ok=True)
        root.chmod(0o711)  # what is in it is for one user each
        place, trouble = reachable(root, RUN / "mirrors", may_mount=may_mount)
        if trouble:
            log.warning("worker.no_mirrors", reason=trouble)
        mirrors = Mirrors(root, place, scratch, settings.mirrors, self._clock)
        record = self._record_commit
        return Sources(settings, walls, self._guard, self._clock, mirrors, record, self._files)

    async def _record_commit(self, fence: Fence, commit: str) -> None:
        assert self._session is not None  # it brought the attempt
        await self._session.record_commit(fence, commit)

    async def _open_containers(self) -> Containers:
        """Remove containers of an earlier life, and let jobs be executed in new ones."""
        place = ContainerPlace(
            self._options.worker_name,
            self._folder,
            self._attempts,
            KeeperConnection(socket.socket(fileno=int(os.environ["ROTA_KEEPER_FD"]))),
            self._clock,
            lambda: self._clock.monotonic() < self._guard.deadline,
            self._guard,
            from_option(self._options.walls).networks,
            self._files,
        )
        containers = await open_containers(containers_from_option(self._options.containers), place)
        if containers.executor is not None:
            self._executors[JobType.CONTAINER] = self._containers = containers.executor
        return containers

    def _open_http(self) -> tuple[Offer, ...]:
        """Let requests be sent for jobs whose work other systems do."""
        settings = http_from_option(self._options.http)
        if not settings.slots:
            return (Offer(OfferKind.TYPE, JobType.HTTP, "http_slots is 0"),)
        secrets, offers = _http_secrets(settings.secrets)
        ground = HttpGround(
            Outgoing(settings.networks),
            WorkerSecrets(secrets),
            lambda: self._clock.monotonic() < self._guard.deadline,
        )
        self._executors[JobType.HTTP] = HttpExecutor(
            self._attempts, self._attempts, self._clock, ground
        )
        return (Offer(OfferKind.TYPE, JobType.HTTP), *offers)

    def _note(self, session: str) -> None:
        """Write the session note: without it, the next start waits for this lease to expire."""
        if self._containers is not None:
            self._containers.session = session
        try:
            leave_note(self._folder, session, self._options.launched_from)
        except OSError as error:
            log.warning("worker.unnoted", session=session, error=str(error))

    def _place_of_plugins(self) -> Place:
        return Place(
            self._attempts,
            self._attempts,
            self._clock,
            self._guard,
            self._folder / "plugins",
            lambda: self._clock.monotonic() < self._guard.deadline,
        )

    async def _serve_functions(self, brought: Brought) -> tuple[str, ...]:
        """Start the app's host; return its functions once it has imported the app."""
        from rota.executors.python import PythonExecutor

        python = PythonExecutor(self._attempts, self._guard, self._options.app)
        self._executors[JobType.PYTHON] = python
        functions = await python.ready()
        await bring_classes(brought, python.types, self._options.app, self._place_of_plugins())
        return functions

    def _http_slots(self) -> dict[str, int]:
        slots = http_from_option(self._options.http).slots
        return {HTTP_SLOTS: slots * UNIT} if slots else {}

    def _hello(
        self,
        functions: tuple[str, ...],
        guard_mode: str,
        walls: tuple[Offer, ...],
        is_swept: bool,
        types: tuple[JobTypeNote, ...],
    ) -> Hello:
        """Say what it offers; what it succeeds is over only if all its containers are gone."""
        return Hello(
            worker=self._options.worker_name,
            pool=self._options.pool,
            slots=self._options.slots,
            labels=self._options.labels,
            resources=offered(self._options.resources) | self._http_slots(),
            functions=functions,
            guard_mode=guard_mode,
            version=__version__,
            succeeds=self._options.succeeds if is_swept else "",
            offers=(*offers(has_app=bool(self._options.app), lease=self._options.lease), *walls),
            job_types=types,
        )


def _http_secrets(
    file: Path | None,
) -> tuple[Mapping[str, WorkerSecret], tuple[Offer, ...]]:
    """Return the secrets that requests may name, and what the worker offers of them."""
    if file is None:
        return {}, ()
    try:
        secrets = read_secrets(file)
    except ValueError as error:
        log.error("http.no_secrets", error=str(error))
        return {}, ()
    return secrets, tuple(
        Offer(OfferKind.SECRET, name, secret.trouble()) for name, secret in secrets.items()
    )


def offers(*, has_app: bool, lease: str = "") -> tuple[Offer, ...]:
    """Return the types of jobs that a worker executes, why not the rest, and what it can do.

    A `lease` in seconds is asked for; its server tells what it has got.
    """
    return (
        Offer(OfferKind.TYPE, JobType.SHELL),
        Offer(OfferKind.TYPE, JobType.PYTHON, "" if has_app else "started without --app"),
        Offer(OfferKind.CAPABILITY, FILES),
        Offer(OfferKind.CAPABILITY, PROBES),
        *([Offer(OfferKind.LEASE, lease)] if lease else []),
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rota.runtime.worker_process")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--server", action="append", default=[])
    parser.add_argument("--tls-ca", type=Path)
    parser.add_argument("--worker-name", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--app", default="")
    parser.add_argument("--executors", type=json.loads, default=[])
    parser.add_argument("--labels", type=json.loads, default={})
    parser.add_argument("--resources", type=json.loads, default={})
    parser.add_argument("--stop-grace", type=float, required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--lease", default="")
    parser.add_argument("--succeeds", default="")
    parser.add_argument("--launched-from", required=True)
    parser.add_argument("--walls", default=as_option(WallSettings()))
    parser.add_argument("--http", default=http_as_option(HttpSettings()))
    parser.add_argument("--sources", default=sources_as_option(SourceSettings()))
    parser.add_argument("--containers", default=containers_as_option(ContainerSettings()))
    return parser.parse_args()


if __name__ == "__main__":
    main()
