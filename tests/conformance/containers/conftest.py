"""Jobs in containers of every engine: real ones, shared by the tests of a process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testkit.servers.engines import Engine, EngineRoom, Registry, missing_programs
from tests.conformance.containers.bench import Bench


@pytest.fixture(scope="session")
def engine_room() -> Iterator[EngineRoom]:
    if (os.geteuid() or missing_programs()) and "CI" not in os.environ:
        pytest.skip(f"needs root and {', '.join(missing_programs())}")
    # Not in pytest's folder: what runs in containers of other users has to pass through it.
    folder = Path(tempfile.mkdtemp(prefix="rota-engines-"))
    try:
        with EngineRoom(folder) as room:
            yield room
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def docker(engine_room: EngineRoom) -> Engine:
    return engine_room.docker()


@pytest.fixture(scope="session")
def podman(engine_room: EngineRoom) -> Engine:
    return engine_room.podman()


@pytest.fixture(scope="session")
def registry(engine_room: EngineRoom) -> Registry:
    return engine_room.registry()


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture
async def bench(engine: Engine, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(engine, tmp_path)
    yield bench
    await bench.close()
    assert engine.names(**bench.labels) == []
    assert sorted(path.name for path in bench.work_root.iterdir()) == []
