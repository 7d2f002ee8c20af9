"""Containers of a worker: what an earlier life left, what can be had, and the executor of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rota.ports.clock import Clock
from rota.ports.executor import AttemptReports, Files, Keeper, Spawner
from rota.ports.work import Offer
from rota.walls import hold
from rota.walls.container import ContainerSettings, find_socket, offers_of, why_no_socket
from rota.walls.network import NAMESERVER, Outbound, WayOut
from rota.walls.probe import find_slirp
from rota.walls.rooms import remove_tree

if TYPE_CHECKING:
    from rota.executors.container import ContainerExecutor
    from rota.walls.container_probe import ContainerTrial
    from rota.walls.engine import ContainerEngine
    from rota.walls.images import RegistryLogin

_JOURNAL = "containers.journal"
_NONE = "no engine is named: set container_engine to its socket, or to auto"
_MISSING = "a package is missing: pip install 'rota[containers]'"
_NOT_FOUND = "auto found no socket of Docker or Podman: set container_engine to its path"
_NOT_ROOT = "only a worker that is root can enter the network of a container"
_NOT_ROOT_TO_LOOK = "only a worker that is root can look into what users of containers hide"
_PRIVATE, _READABLE = 0o700, 0o644
# What an engine that is away, or removes nothing, may take at each of its turns, together.
OPENED_WITHIN = timedelta(minutes=5)
_STARTED_WITHIN = 30.0  # seconds that an engine is waited for whose socket is there
_ASKED_AGAIN = timedelta(seconds=0.5)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Containers:
    """Containers of a worker: its offers, and the executor if there is an engine."""

    offers: tuple[Offer, ...]
    is_swept: bool  # it is certain that no container of an earlier life is left
    executor: ContainerExecutor | None = None  # None: it has none


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """The worker, as far as its containers are concerned."""

    worker: str
    folder: Path
    reports: AttemptReports
    keeper: Keeper
    clock: Clock
    may_start: Callable[[], bool]
    spawner: Spawner
    networks: tuple[IPv4Network, ...]  # private, and open to outbound
    files: Files | None = None


@dataclass(frozen=True, slots=True)
class ContainerNetwork:
    """Giver of ways out, which do not lead to the machine's own networks."""

    outbound: Outbound
    keeper: Keeper

    async def connect(self, container: str) -> WayOut:
        namespace = await self.keeper.network(container)
        try:
            return await self.outbound.attach_to(namespace)
        finally:
            os.close(namespace)


async def open_containers(settings: ContainerSettings, place: ContainerPlace) -> Containers:
    """Remove what is left of an earlier life, and try what can be had now."""
    journal = place.folder / _JOURNAL
    has_left = journal.exists() and journal.stat().st_size > 0
    if not settings.engine and not has_left:
        return _none(settings, _NONE, is_swept=True)
    try:
        return await _open(settings, place)
    except ModuleNotFoundError as error:
        if error.name not in ("aiodocker", "aiohttp"):
            raise
        return _none(settings, _MISSING, is_swept=not has_left)


def _none(settings: ContainerSettings, reason: str, *, is_swept: bool) -> Containers:
    return Containers(tuple(offers_of(settings, reason)), is_swept)


async def _open(settings: ContainerSettings, place: ContainerPlace) -> Containers:
    # The client of engines is a package that few workers need, and takes a while to load.
    from rota.executors.container import ContainerExecutor, ContainerGround
    from rota.walls.container_probe import ContainerTrial
    from rota.walls.engine import ContainerEngine
    from rota.walls.images import Images
    from rota.walls.leftovers import Journal, Sweeper, labels_of

    socket = find_socket(settings.engine)
    engine = ContainerEngine(socket) if socket else None
    labels = labels_of(place.worker, place.folder)
    sweeper = Sweeper(Journal(place.folder / _JOURNAL), place.clock)
    is_reachable = engine is not None and not why_no_socket(socket)
    until = place.clock.monotonic() + _STARTED_WITHIN
    if engine is not None and is_reachable:
        await _waited_for(engine, place.clock, until)
    is_swept = await sweeper.sweep(engine if is_reachable else None, labels)
    if engine is None:
        return _none(settings, _NOT_FOUND if settings.engine else _NONE, is_swept=is_swept)
    work_root, programs = place.folder / "containers", place.folder / "programs"
    trial = ContainerTrial(engine, sweeper, place.keeper, labels, place.folder / "trial", programs)
    await _make_empty(work_root, trial)
    if not hold.why_not_here():
        hold.write_programs(programs)
    lacks = await trial.lacks()
    # It may have gone in the middle.
    if lacks and is_reachable and await _waited_for(engine, place.clock, until):
        lacks = await trial.lacks()
    slirp, no_slirp = await find_slirp()
    network = ContainerNetwork(Outbound(slirp, place.spawner, place.networks), place.keeper)
    no_outbound = lacks or no_slirp or ("" if os.geteuid() == 0 else _NOT_ROOT)
    no_outbound = no_outbound or await trial.outbound_lacks(network.connect)
    logins, reasons = _logins(settings.registries)
    no_disk = "" if os.geteuid() == 0 else _NOT_ROOT_TO_LOOK
    offers = tuple(offers_of(settings, lacks, no_outbound, reasons, no_disk))
    log.info("containers.tried", engine=socket, lacks=lacks, outbound_lacks=no_outbound)
    if lacks:
        await engine.close()
        return Containers(offers, is_swept)
    ground = ContainerGround(
        engine=engine,
        images=Images(engine, logins),
        sweeper=sweeper,
        keeper=place.keeper,
        labels=labels,
        work_root=work_root,
        programs=programs,
        roots=settings.mounts,
        security=trial.security,
        connect=None if no_outbound else network.connect,
        network_files={"/etc/resolv.conf": str(_resolver(place.folder))},
        clear=trial.clear,
    )
    executor = ContainerExecutor(place.reports, place.clock, ground, place.may_start, place.files)
    return Containers(offers, is_swept, executor)


async def _waited_for(engine: ContainerEngine, clock: Clock, until: float) -> bool:
    """Wait for an engine that is being started; return whether it was away, and has come.

    What is tried now is offered until the next start, and as its socket is there, somebody means
    to listen to it.
    """
    from rota.walls.engine import EngineAway, EngineRefused

    was_away = False
    while clock.monotonic() < until:
        try:
            with suppress(EngineRefused):  # it answers
                await engine.facts()
            return was_away
        except EngineAway as away:
            if not was_away:
                log.warning("containers.waiting", reason=str(away), seconds=_STARTED_WITHIN)
            was_away = True
            await clock.sleep(_ASKED_AGAIN)
    return False


async def _make_empty(root: Path, trial: ContainerTrial) -> None:
    """Remove what attempts of an earlier life left in their folders."""
    if left := _removed(root):
        await trial.clear(left)


def _removed(root: Path) -> list[Path]:
    """Remove what is in a folder; return what cannot be."""
    remove_tree(root)
    root.mkdir(mode=_PRIVATE, exist_ok=True)
    return list(root.iterdir())


def _resolver(folder: Path) -> Path:
    """Write what containers with a way out ask for the addresses of names."""
    path = folder / "resolv.conf"
    path.write_text(f"nameserver {NAMESERVER}\n", "ascii")
    path.chmod(_READABLE)  # for whoever a job is, whatever the umask of the worker
    return path


def _logins(file: Path | None) -> tuple[dict[str, RegistryLogin], dict[str, str]]:
    """Return the logins of registries, and why each of them is of no use."""
    from rota.walls.images import read_logins

    if file is None:
        return {}, {}
    try:
        logins = read_logins(file)
    except ValueError as error:
        log.error("containers.no_logins", error=str(error))
        return {}, {}
    return logins, {name: login.trouble() for name, login in logins.items()}
