"""Jobs in containers of every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testkit.servers.engines import Engine
from tests.conformance.containers.bench import Bench
from tests.engines import docker, engine, engine_room, podman, registry

__all__ = ["bench", "docker", "engine", "engine_room", "podman", "registry"]


@pytest.fixture
async def bench(engine: Engine, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(engine, tmp_path)
    yield bench
    await bench.close()
    assert engine.names(**bench.labels) == []
    assert sorted(path.name for path in bench.work_root.iterdir()) == []
