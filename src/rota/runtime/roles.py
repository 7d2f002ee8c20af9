"""The services of one server, by its roles."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from rota import __version__
from rota.dispatcher.floor import Floor, FloorConfig
from rota.domain.ids import new_server_id
from rota.operations.backends import Backends
from rota.ports.clock import Clock
from rota.ports.records import NewServer
from rota.runtime.settings import ServerRole, Settings
from rota.runtime.supervision import Service
from rota.scheduler.cart_keeper import CartKeeper
from rota.scheduler.congestion_watch import CongestionWatch
from rota.scheduler.due_templates import DueTemplates
from rota.scheduler.follower import Follower
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.key_keeper import KeyKeeper
from rota.scheduler.lease_reaper import LeaseReaper
from rota.scheduler.releaser import Releaser
from rota.scheduler.shard_keeper import ShardKeeper
from rota.scheduler.start_predictor import StartPredictor
from rota.scheduler.sweeper import Sweeper
from rota.scheduler.timekeeper import Timekeeper, TimekeeperConfig, grace_of
from rota.scheduler.worker_watch import WorkerWatch


class Roles:
    """What this server does besides answering requests."""

    def __init__(self, settings: Settings, backends: Backends, clock: Clock, url: str) -> None:
        self._settings = settings
        self._backends = backends
        self._clock = clock
        server = _introduction(settings, url)
        self._held = HeldShards(server.id, clock)
        self._keeper = ShardKeeper(backends, clock, server, self._held)
        self.is_stopping = False
        self.floor: Floor | None = None
        if ServerRole.DISPATCHER in settings.roles:
            self.floor = Floor(backends, FloorConfig(lease=settings.lease), server=server.id)

    def services(self) -> Sequence[Service]:
        """All loops, to be supervised together."""
        scheduler = self._scheduler() if ServerRole.SCHEDULER in self._settings.roles else []
        return [self._keeper, *scheduler, *([self.floor] if self.floor else [])]

    def _scheduler(self) -> list[Service]:
        return [
            Timekeeper(self._backends, self._clock, self._held, self._punctuality()),
            Releaser(self._backends, self._clock, self._held),
            CartKeeper(self._backends, self._held),
            Follower(self._backends, self._held),
            WorkerWatch(self._backends, self._held),
            KeyKeeper(self._backends, self._held),
            DueTemplates(self._backends, self._held),
            Sweeper(self._backends, self._clock, self._held),
            LeaseReaper(self._backends, self._clock),
            CongestionWatch(self._backends, self._clock, self._held),
            StartPredictor(self._backends, self._clock, self._held),
        ]

    def _punctuality(self) -> TimekeeperConfig:
        if self._settings.is_alone:
            return TimekeeperConfig()
        return TimekeeperConfig(grace=grace_of(self._settings.renewed_within))

    def hindrance(self) -> str:
        """What keeps this server from its roles; "" when nothing does."""
        if self.is_stopping:
            return "this server is stopping"
        return "" if self._held.is_current else "this server has no lease in the cluster"

    async def hand_over(self) -> None:
        """Let other servers fire from here on."""
        await self._keeper.hand_over()

    async def stop_claiming(self) -> None:
        """Claim no more; returns when what was claimed is with its workers, or after a grace."""
        if self.floor is not None:
            await self.floor.retire()

    async def leave(self) -> None:
        """Say goodbye; nothing of `services` may run any more."""
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
