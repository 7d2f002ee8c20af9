"""Containers of a worker: what becomes of them when things end, and what they reach."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from rota.sdk.answers import Run, RunDetail
from testkit.hostile import entry, link, tar
from testkit.processes import RotaUp, processes_of
from testkit.servers.engines import BASE, Engine
from testkit.waiting import eventually
from testkit.walled import INTERNET
from tests.engines import docker, engine_room, podman
from tests.system.jobs import Document, apply, job, log_of, settle
from tests.system.walls.conftest import USERS, Machine, builder

__all__ = ["docker", "engine_room", "podman"]

pytestmark = pytest.mark.timeout(120)


def boxed(name: str, script: str, **fields: object) -> Document:
    given = {"isolation": "container", "network": "none", "image": BASE, "pull": "never"}
    return job(name, script, **{**given, **fields})


def names(engine: Engine) -> list[str]:
    return [name for name in engine.names() if name.startswith("rota-r_")]


class Scene:
    """A server with a worker that has an engine, and a short lease."""

    def __init__(self, home: Path, engine: Engine) -> None:
        self.engine = engine
        self.rota = RotaUp(home, container_engine=str(engine.socket), lease="3s")

    def start_and_wait(self, script: str = "touch ready; exec sleep 1000", **fields: object) -> Run:
        """Start a run, and wait until its step makes a file that says so."""
        apply(self.rota.client, boxed("boxed", script, **fields))
        run = self.rota.client.trigger("boxed")
        eventually(lambda: list(self.rota.home.glob("workers/*/containers/*/job/ready")))
        return run


@pytest.fixture(params=["docker", pytest.param("podman", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture
def scene(home: Path, engine: Engine) -> Iterator[Scene]:
    scene = Scene(home, engine)
    scene.rota.start()
    try:
        yield scene
    finally:
        scene.rota.close()
        engine.thaw()
        for name in names(engine):
            engine.remove(name)


def test_code_and_files_are_in_the_container(scene: Scene, tmp_path: Path) -> None:
    """They are unpacked behind a wall of their own, and refused there if they are hostile."""
    client = scene.rota.client
    code, bad, table = tmp_path / "code.tar", tmp_path / "bad.tar", tmp_path / "table.csv"
    code.write_bytes(tar(entry("run.sh", b'#!/bin/sh\ncat "$INPUT_TABLE"; ls\n', 0o755)))
    bad.write_bytes(tar(link("out", "/etc/passwd"), entry("out/x", b"x")))
    table.write_text("1,2\n")
    given = {"table": client.upload(table)}
    inputs = {"table": {"type": "file"}}

    def ran(path: Path) -> RunDetail:
        source = {"upload": {"digest": client.upload(path)["digest"], "name": path.name}}
        apply(client, boxed("boxed", "./run.sh", source=source, inputs=inputs))
        return settle(client, client.trigger("boxed", given))

    good, refused = ran(code), ran(bad)

    assert good.state == "COMPLETED", log_of(client, good.id)
    assert log_of(client, good.id).splitlines()[-3:] == ["1,2", "run.sh", "table.csv"]
    assert (refused.state, refused.cause) == ("FAILED", "source")
    assert "leads out of the folder" in refused.message
    assert "has no sandbox" not in log_of(client, good.id)


class TestEnds:
    def test_next_start_sweeps_what_kill_9_of_everything_left(self, scene: Scene) -> None:
        run = scene.start_and_wait()
        left = names(scene.engine)
        for pid in processes_of(scene.rota.home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        scene.rota.wait()

        scene.rota.start()

        eventually(lambda: not set(left) & set(names(scene.engine)))
        scene.rota.client.cancel_run(run.id)
        assert settle(scene.rota.client, run).is_settled

    def test_worker_that_stops_ends_its_containers(self, scene: Scene) -> None:
        scene.start_and_wait("trap 'exit 0' TERM; touch ready; while :; do sleep 0.1; done")

        scene.rota.stop()

        assert names(scene.engine) == []


@pytest.fixture(
    scope="module",
    params=[
        "root-docker",
        "somebody-podman",
        pytest.param("root-podman", marks=pytest.mark.long),
        pytest.param("somebody-docker", marks=pytest.mark.long),
    ],
)
def machine(_programs: None, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A worker that is root, and one that only may ask the engine."""
    user, _, kind = request.param.partition("-")
    engine: Engine = request.getfixturevalue(kind)
    engine.socket.chmod(0o666)
    with ExitStack() as stack:
        yield builder(stack)(USERS[user], container_engine=str(engine.socket))


def boxed_in(machine: Machine, script: str, **fields: object) -> str:
    """Execute a job in a container; return what it printed."""
    walls = {"isolation": "container", "network": "none", "image": BASE, "pull": "never"}
    run = machine.run(script, **{**walls, **fields})
    assert run.state == "COMPLETED", (run.message, machine.printed(run))
    return machine.printed(run)


class TestMachine:
    def test_folder_of_a_job_is_removed_whoever_made_what_is_in_it(self, machine: Machine) -> None:
        script = "mkdir -p a/b; touch a/b/c /run/rota/d; chmod 700 a; chmod 000 a/b; echo ready"

        boxed_in(machine, script)

        eventually(lambda: not list(machine.rota.home.glob("workers/*/containers/*")))

    def test_outbound_reaches_the_internet_and_nothing_else(self, machine: Machine) -> None:
        if not machine.is_root:
            return  # it cannot enter the network of a container, and offers none
        network = machine.network
        targets = " ".join(["127.0.0.1", "10.77.0.1", "169.254.169.254", "192.168.9.9", INTERNET])
        script = f"for each in {targets}; do nc -w 2 $each {network.port} </dev/null || true; done"

        network.came.clear()
        alone = boxed_in(machine, script)
        assert (network.came, "welcome" in alone) == (set(), False)
        out = boxed_in(machine, script, network="outbound")

        assert network.came == {INTERNET}
        assert "welcome" in out

    def test_offers_tell_what_a_worker_that_is_not_root_lacks(self, machine: Machine) -> None:
        [worker] = machine.rota.client.list_workers().items
        told = {f"{each.kind}/{each.name}": each.reason for each in worker.offers}

        assert (told["wall/container"], told["limit/container/memory"]) == ("", "")
        assert (told["network/container/outbound"] == "") is machine.is_root
