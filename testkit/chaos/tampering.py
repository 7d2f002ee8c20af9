"""Faults by malicious peers: a worker with forged reports, a job that kills its worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from rota.domain.errors import Unavailable
from rota.domain.run import AttemptResult
from rota.link.grpc_client import GrpcAccess, GrpcConnector
from rota.ports.work import Hello, Outcome, Report
from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.chaos.backend_faults import STORE
from testkit.chaos.client import AWAY, AnyServer
from testkit.chaos.faults import Fault
from testkit.chaos.network import ProxiedCluster
from testkit.waiting import boottime

T = TypeVar("T")

REPLAYED = "replayed"  # what the message of a refused report says
_REPORTS = 20
_NAME = "stranger"
_AWAY = (*AWAY, Unavailable)
_PATIENCE = timedelta(seconds=12)
_PAUSE_SECONDS = 0.1


class Stranger:
    """Worker with a valid token that reports attempts which it never had."""

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._cluster = cluster
        self._runner = asyncio.Runner()  # one for all its talks: gRPC does not change its loop
        self._token = ""

    def close(self) -> None:
        self._runner.close()

    def get_token(self) -> None:
        """Create a worker's token, as whoever runs the store can."""
        if not self._token:
            store = Settings(store=self._cluster.postgres.address("rota"))
            _, self._token = machine.create_for_worker(store, _NAME, pool=None)

    def is_refused(self, runs: Sequence[Run]) -> bool:
        """Report ends of attempts at these runs; return whether every report was refused."""
        return self._runner.run(self._report(runs))

    async def _report(self, runs: Sequence[Run]) -> bool:
        addresses = tuple(server.grpc for server in self._cluster.servers)
        link = await GrpcConnector(GrpcAccess(addresses, self._token)).connect()
        try:
            await link.register(Hello(_NAME, "nowhere", 1))
            report = Report(outcomes=tuple(_made_up(run) for run in runs))
            answer = await link.report(report)
            await link.leave()
        finally:
            await link.close()
        return set(answer.refused) == set(report.fences())


def _once_served(ask: Callable[[], T | None]) -> T | None:
    """Return the first true answer; none if the servers stay away for long."""
    end = boottime() + _PATIENCE.total_seconds()
    while boottime() < end:
        with suppress(*_AWAY):
            if answer := ask():
                return answer
        threading.Event().wait(_PAUSE_SECONDS)
    return None


class ReplayedReport(Fault):
    """A stranger reports how attempts of others ended; felt if every report was refused."""

    kind = "report replayed"
    least = timedelta(0)

    def __init__(self, stranger: Stranger, observer: AnyServer) -> None:
        super().__init__(_NAME, STORE)
        self._stranger = stranger
        self._observer = observer
        self._was_refused = False

    def inject(self) -> str:
        self._stranger.get_token()
        self._was_refused = bool(_once_served(self._report))
        return f"up to {_REPORTS} attempts"

    def is_felt(self) -> bool:
        return self._was_refused

    def _report(self) -> bool:
        runs = self._observer.send(Client.list_runs(limit=_REPORTS))
        return self._stranger.is_refused([run for run in runs if run.attempt])


def _made_up(run: Run) -> Outcome:
    return Outcome(run.id, run.attempt, AttemptResult.FAILED, 1, 2, exit_code=9, message=REPLAYED)


class PoisonRun(Fault):
    """A run that kills every worker that executes it."""

    kind = "poison run"
    least = timedelta(0)

    def __init__(self, observer: AnyServer) -> None:
        super().__init__("poison", STORE)
        self._observer = observer
        self._run: Run | None = None

    def inject(self) -> str:
        call = Client.trigger("poison")  # it has a key: asked again, it is no second run
        self._run = _once_served(lambda: self._observer.send(call))
        return self._run.id if self._run else "not submitted"

    def is_felt(self) -> bool:
        """Return whether its worker was lost."""
        if self._run is None:
            return False
        try:
            return self._observer.send(Client.get_run(self._run.id)).losses > 0
        except AWAY:
            return False
