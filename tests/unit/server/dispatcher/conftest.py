"""Servers' floors over one store with a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.blobs.files import open_files
from rota.operations.engine import Engine
from rota.queue.local import LocalIdleWorkers
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.new_stores import local_queue, open_new_sqlite

CONFIG = FloorConfig(lease=timedelta(seconds=30))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = FakeTicker()
    store = await open_new_sqlite(tmp_path / "rota.db", clock=clock)
    yield Scene(store, clock)
    await store.close()


@pytest.fixture
async def engine(scene: Scene, tmp_path: Path) -> AsyncIterator[Engine]:
    async with await open_files(tmp_path / "blobs") as blobs:
        yield Engine(scene.store, local_queue(scene.store), blobs, LocalIdleWorkers())


@pytest.fixture
def floor(engine: Engine) -> Floor:
    return Floor(engine, CONFIG, "s_1")
