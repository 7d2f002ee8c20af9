"""Servers' floors over one store with a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.blobs.files import open_files
from rota.operations.backends import Backends
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
async def backends(scene: Scene, tmp_path: Path) -> AsyncIterator[Backends]:
    async with await open_files(tmp_path / "blobs") as blobs:
        yield Backends(scene.store, local_queue(scene.store), blobs)


@pytest.fixture
def floor(backends: Backends) -> Floor:
    return Floor(backends, CONFIG, "s_1")
