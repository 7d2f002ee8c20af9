from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.domain.run import AttemptResult
from rota.domain.spec import Retry, Step
from rota.executors import container as executor
from rota.walls.engine import (
    PATIENCE,
    ContainerEngine,
    EnginePatience,
    EngineRefused,
    ProcessState,
)
from rota.walls.leftovers import Journal, Sweeper, labels_of
from testkit.servers.engines import Engine, EngineRoom
from tests.conformance.containers.bench import Bench, job

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SECOND = timedelta(seconds=1)
LOOPS = "echo ready; while :; do sleep 0.1; done"


@pytest.fixture(scope="session")
def own_docker(engine_room: EngineRoom) -> Engine:
    """Docker for tests that break it: containers of others would die with it."""
    return engine_room.docker("docker-broken")


@pytest.fixture(scope="session")
def own_podman(engine_room: EngineRoom) -> Engine:
    return engine_room.podman("podman-broken")


@pytest.fixture(params=["own_docker", pytest.param("own_podman", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture
async def bench(
    engine: Engine, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Bench]:
    is_hurried = request.cls is TestHungEngine
    patience = EnginePatience(answer=3.0, create=6.0) if is_hurried else PATIENCE
    bench = Bench(engine, tmp_path, patience=patience)
    yield bench
    if not engine.is_up:
        engine.start()
    engine.thaw()
    await bench.close()
    assert engine.names(**bench.labels) == []


async def aside(action: Callable[..., Any], *arguments: Any) -> None:
    """Do something that blocks."""
    await asyncio.get_running_loop().run_in_executor(None, action, *arguments)


class TestKilledEngine:
    async def test_run_fails_and_ends_once_the_engine_is_back(self, bench: Bench) -> None:
        run = bench.start(job(LOOPS))
        await run.shows("ready")

        await aside(bench.engine.kill)
        await run.shows("its container is not gone: the container engine cannot be reached")

        assert not run.is_over()
        assert run.container in bench.sweeper.journal.open
        await aside(bench.engine.start)
        outcome = await run.outcome()
        assert outcome.result == AttemptResult.FAILED
        assert "the container" in outcome.message
        assert bench.engine.names() == []

    async def test_next_run_says_what_is_wrong(self, bench: Bench) -> None:
        await aside(bench.engine.kill)

        outcome, sink = await bench.run(job("true"))

        assert outcome.result == AttemptResult.FAILED
        assert outcome.message == f"the container engine cannot be reached at {bench.engine.socket}"
        assert sink.text() == f"{outcome.message}\n"

    async def test_engine_that_is_stopped_by_its_admin_ends_the_run(self, bench: Bench) -> None:
        run = bench.start(job(LOOPS))
        await run.shows("ready")

        await aside(bench.engine.stop)
        await aside(bench.engine.start)

        outcome = await run.outcome()
        assert outcome.result == AttemptResult.FAILED
        assert bench.engine.names() == []


class TestForgetfulEngine:
    async def test_an_end_that_nobody_knows_is_a_loss_and_no_failure(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def forgotten(_: object, process: str) -> ProcessState:
            raise EngineRefused(f"no such process: {process}")

        monkeypatch.setattr(ContainerEngine, "process", forgotten)
        monkeypatch.setattr(executor, "_FORGOTTEN", 0.5)
        step = Step("only", "echo once", retry=Retry(attempts=3))

        outcome, sink = await bench.run(job(step))

        assert outcome.result == AttemptResult.LOST
        assert "the container engine has forgotten how the step ended" in outcome.message
        assert sink.text().count("once") == 1
        assert bench.engine.names(**bench.labels) == []


class TestHungEngine:
    @pytest.fixture(autouse=True)
    def _in_a_hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(executor, "_PULSE", timedelta(milliseconds=200))

    async def test_run_goes_on_when_the_engine_does(self, bench: Bench) -> None:
        run = bench.start(job("echo ready; while [ ! -e go ]; do sleep 0.1; done; echo done"))
        await run.shows("ready")

        bench.engine.freeze()
        run.folder.joinpath("go").touch()
        await asyncio.get_running_loop().run_in_executor(None, _ask_in_vain, bench.engine)
        bench.engine.thaw()

        outcome = await run.outcome()
        assert outcome.result in (AttemptResult.COMPLETED, AttemptResult.LOST), outcome.message
        if outcome.result == AttemptResult.LOST:  # podman did not hear of the end
            assert "the container engine has forgotten how the step ended" in outcome.message
        assert "done" in run.sink.text()

    async def test_run_fails_when_the_engine_is_silent_for_too_long(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(executor, "_PATIENCE", 1.0)
        run = bench.start(job(LOOPS))
        await run.shows("ready")

        bench.engine.freeze()
        await run.shows("its container is not gone: the container engine did not answer")

        assert not run.is_over()
        bench.engine.thaw()
        outcome = await run.outcome()
        assert outcome.result == AttemptResult.FAILED
        assert "the container engine did not answer" in outcome.message

    async def test_cancelled_run_ends_once_the_engine_answers(self, bench: Bench) -> None:
        run = bench.start(job(LOOPS, grace=SECOND))
        await run.shows("ready")

        bench.engine.freeze()
        run.cancel()
        await asyncio.get_running_loop().run_in_executor(None, _ask_in_vain, bench.engine)
        assert not run.is_over()
        bench.engine.thaw()

        outcome = await run.outcome()
        assert outcome.result == AttemptResult.CANCELLED

    async def test_create_that_was_not_answered_leaves_nothing(self, bench: Bench) -> None:
        bench.engine.freeze()
        run = bench.start(job("true"))
        await run.shows("did not answer")
        bench.engine.thaw()

        outcome = await run.outcome()

        assert outcome.result == AttemptResult.FAILED
        assert bench.engine.names() == []


def _ask_in_vain(engine: Engine) -> None:
    """Wait until a request has gone unanswered for a while."""
    assert not engine.answers_within(3.5)


class TestForeignHand:
    async def test_container_that_somebody_removes_ends_its_run(self, bench: Bench) -> None:
        run = bench.start(job(LOOPS, "echo never"))
        await run.shows("ready")

        await aside(bench.engine.remove, run.container)

        outcome = await run.outcome()
        assert outcome.result == AttemptResult.FAILED
        # Which the engine tells first: the end of the step's process, or of its container.
        told = ("the container ended while the step ran", "exit 137")
        assert any(words in outcome.message for words in told), outcome.message


class TestLeftovers:
    async def test_next_life_removes_what_this_one_left(self, bench: Bench, tmp_path: Path) -> None:
        run = bench.start(job(LOOPS))
        await run.shows("ready")
        other = Bench(bench.engine, _made(tmp_path / "other"))
        neighbour = other.start(job(LOOPS))
        await neighbour.shows("ready")
        journal = Journal(_copied(bench.folder / "journal", tmp_path / "copy"))
        assert list(journal.open) == [run.container]

        is_certain = await Sweeper(journal, bench.clock).sweep(bench.client, bench.labels)

        assert is_certain
        assert bench.engine.names(**bench.labels) == []
        assert not neighbour.is_over()
        neighbour.cancel()
        await neighbour.outcome()
        await other.close()
        await run.outcome()

    async def test_sweep_needs_no_journal_and_no_engine_of_the_settings(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        first = bench.start(job(LOOPS))
        await first.shows("ready")
        empty, full = (
            Journal(tmp_path / "empty"),
            Journal(_copied(bench.folder / "journal", tmp_path / "full")),
        )

        assert await Sweeper(empty, bench.clock).sweep(bench.client, bench.labels)
        assert bench.engine.names(**bench.labels) == []
        await first.outcome()
        second = bench.start(job(LOOPS))
        await second.shows("ready")
        full.note(second.container, str(bench.engine.socket))
        assert await Sweeper(full, bench.clock).sweep(None, {})

        assert bench.engine.names(**bench.labels) == []
        await second.outcome()

    async def test_sweep_without_the_engine_is_not_certain(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        journal, none = Journal(tmp_path / "full"), Journal(tmp_path / "none")
        journal.note("rota-r_1-1-s", str(bench.engine.socket))
        await aside(bench.engine.kill)

        assert not await Sweeper(journal, bench.clock).sweep(bench.client, bench.labels)
        assert await Sweeper(none, bench.clock).sweep(bench.client, bench.labels)

        await aside(bench.engine.start)
        assert await Sweeper(journal, bench.clock).sweep(bench.client, bench.labels)
        assert journal.open == {}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _copied(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes())
    return target


def test_labels_are_of_the_folder_as_well(tmp_path: Path) -> None:
    one, two = labels_of("w", _made(tmp_path / "1")), labels_of("w", _made(tmp_path / "2"))

    assert one != two
    assert one["rota.worker"] == two["rota.worker"] == "w"
