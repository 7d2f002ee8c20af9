"""Rota's own executors pass the public suite, with real processes, sandboxes and engines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any, ClassVar

import pytest
import uvloop

from rota.clock import SystemClock
from rota.domain.jobfile import read_job
from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import Container, Delivery, Isolation, JobSpec, JobType, Network, PullPolicy
from rota.executors.container import ContainerExecutor
from rota.executors.hosted import HostedCalls, HostedExecutor
from rota.executors.http import HttpExecutor, HttpGround
from rota.executors.http_secrets import WorkerSecrets
from rota.executors.python import PythonExecutor
from rota.executors.shell import ShellExecutor
from rota.outgoing import Outgoing
from rota.ports.executor import AttemptReports, Executor
from rota.ports.work import Outcome
from rota.testing.executors import (
    LEFT_SECONDS,
    STEPS_IN_SHELL,
    Behaviour,
    Bench,
    ExecutorConformance,
    Reports,
)
from rota.testing.remote import RemoteConformance
from rota.walls.enclosing import Equipment, Walls, WallSettings
from rota.walls.probe import Prober
from rota.walls.rooms import Rooms
from rota.worker.guard import Guard
from testkit.http_service import BREAKS, Reply, reply, serving
from testkit.processes import cmdline, processes_of
from testkit.servers.engines import BASE, Engine
from tests.conformance.containers.bench import ground_on
from tests.engines import docker, engine_room, podman
from tests.system.guardian.guarded import Guarded

__all__ = ["docker", "engine_room", "podman"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guardian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guardian"), "auto")
    guarded.lease(3600)
    yield guarded
    guarded.close()


class OwnSuite(ExecutorConformance):
    """What all of Rota's executors have: a guardian, and uvloop as in a worker."""

    guardian: Guarded

    @pytest.fixture(autouse=True)
    def _of_guardian(self, guardian: Guarded) -> None:
        self.guardian = guardian

    def new_loop(self) -> uvloop.Loop:
        return uvloop.new_event_loop()

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return JobSpec("conformance", steps=STEPS_IN_SHELL[behaviour])

    def leftovers(self) -> Sequence[object]:
        return [pid for pid in processes_of(LEFT_SECONDS) if b"sleep" in cmdline(pid)]

    @contextmanager
    def guard(self) -> Iterator[Guard]:
        guard = Guard(*self.guardian.connection())
        try:
            yield guard
        finally:
            guard.close()


class TestProcess(OwnSuite):
    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        with self.guard() as guard:
            yield ShellExecutor(reports, guard, SystemClock(), folder / "work")


@contextmanager
def passable_folder() -> Iterator[Path]:
    """A folder that other users can pass through, as they cannot through pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="rota-rooms-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class TestSandbox(OwnSuite):
    many = 20
    equipment: ClassVar[Equipment | None] = None  # tried once
    ground: Path

    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        with self.guard() as guard, passable_folder() as ground:
            self.ground = ground
            rooms = Rooms(ground / "rooms", WallSettings().uids, may_mount=False)
            walls = Walls(WallSettings(), guard, rooms)
            if self.equipment is None:
                await Prober(walls, guard).probe()
                type(self).equipment = walls.equipment
            walls.equipment = self.equipment or walls.equipment
            yield ShellExecutor(reports, guard, SystemClock(), folder / "work", walls)

    def leftovers(self) -> Sequence[object]:
        return [*super().leftovers(), *(self.ground / "rooms").iterdir()]

    def spec(self, behaviour: Behaviour) -> JobSpec:
        spec = super().spec(behaviour)
        return replace(spec, isolation=Isolation.SANDBOX, network=Network.NONE)


class TestPython(OwnSuite):
    has_exit_codes = False

    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        with self.guard() as guard:
            executor = PythonExecutor(reports, guard, "tests.conformance.executors.app:app")
            await executor.ready()
            yield executor

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return JobSpec("any", type=JobType.PYTHON, function=f"conformance.{behaviour}")


class TestHosted(OwnSuite, RemoteConformance):
    """An executor class of an app; those of plug-ins are no different."""

    lacks: ClassVar[Mapping[Behaviour, str]] = {Behaviour.STEPS: "its steps are those of the walk"}

    @pytest.fixture(autouse=True)
    def _beside(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.ledger = tmp_path_factory.mktemp("other-system")

    @asynccontextmanager
    async def executor(self, reports: Reports, folder: Path) -> AsyncIterator[Executor]:
        with self.guard() as guard:
            calls = HostedCalls(reports, guard, "tests.conformance.executors.remote_app:app")
            [hosted] = await calls.ready()
            yield HostedExecutor(reports, reports, SystemClock(), calls, hosted)

    def spec(self, behaviour: str) -> JobSpec:
        parameters = {"behaviour": str(behaviour), "folder": str(self.ledger)}
        return JobSpec("any", type="conforming", parameters=parameters)

    def submissions(self) -> Sequence[str]:
        file = self.ledger / "submissions"
        return file.read_text().split() if file.exists() else []

    def outcome_of(self, bench: Bench, behaviour: str, **fields: Any) -> Outcome:
        spec = replace(self.spec(behaviour), grace=timedelta(minutes=5), **fields)
        [attempt] = bench.start([spec])
        return attempt.outcome()

    def test_work_may_be_over_with_its_submission(self, bench: Bench) -> None:
        outcome = self.outcome_of(bench, "at_once")

        assert (outcome.result, outcome.outputs) == (AttemptResult.COMPLETED, {"rows": 3})
        assert bench.reports.handles == {}

    @pytest.mark.parametrize(
        ("behaviour", "words"),
        [
            ("nameless", "submit: it returned nothing that names the work"),
            ("wordy", "submit: what it returned has more than 4 KiB"),
            ("break", "submit: ConnectionError: the line went dead: it may have been begun"),
        ],
    )
    def test_work_without_a_name_is_unclear(self, bench: Bench, behaviour: str, words: str) -> None:
        """It may go on there, and nobody can look after it."""
        once = self.outcome_of(bench, behaviour, delivery=Delivery.AT_MOST_ONCE)
        often = self.outcome_of(bench, behaviour)

        assert (once.result, once.message) == (AttemptResult.LOST, words)
        assert (often.result, often.message) == (AttemptResult.FAILED, words)

    def test_what_was_not_submitted_may_be_tried_again(self, bench: Bench) -> None:
        outcome = self.outcome_of(bench, "refuse", delivery=Delivery.AT_MOST_ONCE)

        assert (outcome.result, outcome.message) == (
            AttemptResult.FAILED,
            "submit: the desk is closed",
        )

    def test_an_error_is_in_the_output_with_its_traceback(self, bench: Bench) -> None:
        [attempt] = bench.start([replace(self.spec("break"), grace=timedelta(minutes=5))])
        attempt.outcome(AttemptResult.FAILED)

        printed = attempt.printed(Stream.STDERR)
        assert printed.startswith("Traceback (most recent call last):")
        assert "remote_app.py" in printed
        assert "rota/sdk" not in printed

    @pytest.mark.parametrize(
        ("behaviour", "words"),
        [
            ("silent", "ConnectionError: nobody there"),
            ("odd", "it returned 'fine', which is not one of processing, completed, failed"),
        ],
    )
    def test_looks_that_tell_nothing_end_with_patience(
        self, bench: Bench, behaviour: str, words: str
    ) -> None:
        outcome = self.outcome_of(bench, behaviour)

        assert outcome.result == AttemptResult.FAILED
        assert outcome.message == (
            f"status: no answer of use for 1s: {words}; the work there may go on"
        )


class TestHttp(RemoteConformance):
    """Requests to a real server, which answers as the suite asks."""

    lacks: ClassVar[Mapping[Behaviour, str]] = {
        Behaviour.SPEAK: "an answer has one stream",
        Behaviour.PROGRESS: "it is told in percent",
        Behaviour.STEPS: "its steps are those of the walk",
        Behaviour.LEAVE: "nothing is started here",
    }

    @pytest.fixture(autouse=True)
    def _with_service(self) -> Iterator[None]:
        with serving() as self.service:
            poured = "".join(f"{number}\n" for number in range(1, 500_001)).encode()
            for behaviour, said in ((Behaviour.HOLD, b"ready\n"), (Behaviour.POUR, poured)):
                self._answers(behaviour, Reply(202, said), Reply(202))
            self._answers(Behaviour.SUCCEED, Reply(202), Reply(204))
            self._answers(Behaviour.FAIL, Reply(202), Reply(422, b"no water"))
            self._answers(Behaviour.RESULT, Reply(202), reply({"rows": 3}))
            self._answers(Behaviour.DEAF, Reply(202, b"ready\n"), Reply(202))
            self._answers(Behaviour.BREAK, BREAKS, Reply(202))
            self.service.on("GET", f"/{Behaviour.POUR}", Reply(204))
            self.service.on("DELETE", f"/{Behaviour.HOLD}", Reply(200, b"tidy\n"))
            self.service.on("DELETE", f"/{Behaviour.DEAF}", Reply(body=b"..", pieces=2, pause=2.0))
            yield

    def _answers(self, behaviour: Behaviour, submit: Reply, status: Reply) -> None:
        located = replace(submit, headers={"Location": f"/{behaviour}"})
        self.service.on("POST", f"/{behaviour}", located)
        self.service.on("GET", f"/{behaviour}", status)

    @asynccontextmanager
    async def executor(self, reports: Reports, folder: Path) -> AsyncIterator[Executor]:
        ground = HttpGround(
            Outgoing((ip_network("127.0.0.1/32"),)), WorkerSecrets({}), lambda: True
        )
        yield HttpExecutor(reports, reports, SystemClock(), ground)

    def spec(self, behaviour: Behaviour) -> JobSpec:
        there = {"url": {"header": "Location"}}
        outputs = {"outputs": {"rows": "/rows"}} if behaviour is Behaviour.RESULT else {}
        http = {
            "submit": {"url": f"{self.service.url}/{behaviour}", "method": "POST"},
            "status": there,
            "cancel": there | {"method": "DELETE"},
            "result": {"running": ["202"], **outputs},
        }
        spec = read_job({"name": "any", "type": "http", "http": http})
        assert spec.http is not None
        return replace(spec, http=replace(spec.http, every=timedelta(milliseconds=50)))

    def submissions(self) -> Sequence[str]:
        return [each.headers["idempotency-key"] for each in self.service.of("POST")]


class ContainerSuite(OwnSuite):
    many = 6
    engine: Engine

    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        ground = ground_on(self.engine, folder)
        yield ContainerExecutor(reports, SystemClock(), ground, may_start=lambda: True)
        ground.sweeper.journal.close()
        assert self.engine.names(**ground.labels) == []
        assert list(ground.work_root.iterdir()) == []

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return replace(
            super().spec(behaviour),
            type=JobType.CONTAINER,
            isolation=Isolation.CONTAINER,
            container=Container(image=BASE, pull=PullPolicy.NEVER),
            network=Network.NONE,
        )


class TestDocker(ContainerSuite):
    @pytest.fixture(autouse=True)
    def _on_docker(self, docker: Engine) -> None:
        self.engine = docker


@pytest.mark.long
class TestPodman(ContainerSuite):
    @pytest.fixture(autouse=True)
    def _on_podman(self, podman: Engine) -> None:
        self.engine = podman
