"""Faults by bad company: a worker that reports what is not its own, a job that kills its worker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import timedelta

from rota.adapters.link.grpc_client import GrpcAccess, GrpcLink
from rota.domain.errors import Unavailable
from rota.domain.run import AttemptResult
from rota.ports.work import Hello, Outcome
from rota.runtime import tokens
from rota.runtime.settings import Settings
from rota.sdk import calls
from rota.sdk.answers import Run
from rota.testing.chaos.client import AWAY, AnyServer
from rota.testing.chaos.faults import Fault
from rota.testing.chaos.network import ProxiedCluster

REPLAYED = "replayed"  # what the message of a refused report says
_REPORTS = 20
_NAME = "stranger"


class Stranger:
    """Somebody with a worker's token, who tells of attempts that it never had."""

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._cluster = cluster
        self._runner = asyncio.Runner()  # one for all its talks: gRPC does not change its loop
        self._token = ""

    def close(self) -> None:
        self._runner.close()

    def get_token(self) -> None:
        """From whoever runs the store."""
        if not self._token:
            store = Settings(store=self._cluster.postgres.address("rota"))
            _, self._token = tokens.create_for_worker(store, _NAME, pool=None)

    def is_refused(self, runs: Sequence[Run]) -> bool:
        """Say how the attempts at these runs ended; whether every report was refused."""
        return self._runner.run(self._report(runs))

    async def _report(self, runs: Sequence[Run]) -> bool:
        address = next(server.grpc for server in self._cluster.servers if server.is_running)
        link = await GrpcLink.open(address, GrpcAccess((address,), self._token))
        try:
            await link.register(Hello(_NAME, "nowhere", 1))
            answer = await link.report([_made_up(run) for run in runs])
            await link.leave()
        finally:
            await link.close()
        return bool(answer.fenced) and not answer.accepted


class ReplayedReport(Fault):
    """A stranger reports how attempts of others ended."""

    kind = "report replayed"
    least = timedelta(0)

    def __init__(self, stranger: Stranger, observer: AnyServer) -> None:
        super().__init__(_NAME)
        self._stranger = stranger
        self._observer = observer

    def inject(self) -> str:
        self._stranger.get_token()
        return f"up to {_REPORTS} attempts"

    def is_felt(self) -> bool:
        """Every one of the reports was refused."""
        try:
            runs = self._observer.send(calls.list_runs(limit=_REPORTS))
            return self._stranger.is_refused([run for run in runs if run.attempt])
        except (*AWAY, Unavailable):
            return False


def _made_up(run: Run) -> Outcome:
    return Outcome(run.id, run.attempt, AttemptResult.FAILED, 1, 2, exit_code=9, message=REPLAYED)


class PoisonRun(Fault):
    """A run that kills every worker it meets."""

    kind = "poison run"
    least = timedelta(0)

    def __init__(self, observer: AnyServer) -> None:
        super().__init__("poison")
        self._observer = observer
        self._key = str(uuid.uuid4())

    def inject(self) -> str:
        return ""

    def is_felt(self) -> bool:
        """Its worker was lost. Asking again with the same key is no second run."""
        try:
            run = self._observer.send(calls.trigger("poison", key=self._key))
            return self._observer.send(calls.get_run(run.id)).losses > 0
        except AWAY:
            return False
