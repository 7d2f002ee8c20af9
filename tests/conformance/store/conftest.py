"""Every adapter of the store port, with a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.adapters.store.sqlite.opening import open_sqlite
from rota.ports.store import Store
from rota.testing.builders import Scene
from rota.testing.clock import FakeTicker


@pytest.fixture
def clock() -> FakeTicker:
    return FakeTicker()


@pytest.fixture(params=["sqlite"])
async def store(tmp_path: Path, clock: FakeTicker) -> AsyncIterator[Store]:
    opened = await open_sqlite(tmp_path / "rota.db", clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
def scene(store: Store, clock: FakeTicker) -> Scene:
    return Scene(store, clock)
