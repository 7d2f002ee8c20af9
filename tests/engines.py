"""Where the engines of tests come from: real ones, shared by the tests of a process.

A `conftest.py` imports what its tests need.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.servers.engines import Engine, EngineRoom, Registry, missing_programs


@pytest.fixture(scope="session")
def engine_room() -> Iterator[EngineRoom]:
    """Without engines the test is skipped, but not in CI."""
    if os.geteuid() != 0:
        pytest.skip("only root can start engines of the test's own")
    if missing_programs() and "CI" not in os.environ:
        pytest.skip(f"needs {', '.join(missing_programs())}")
    # Not in pytest's folder: other users have to pass through it.
    folder = Path(tempfile.mkdtemp(prefix="rota-engines-", dir="/var/tmp"))
    folder.chmod(0o755)
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
