"""A server's book about its workers, and how it is put right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.adapters.blobs.files import open_files
from rota.adapters.queue.local import LocalQueue
from rota.adapters.store.sqlite.opening import open_sqlite
from rota.dispatcher.floor import Floor, FloorConfig
from rota.domain.ids import SessionId
from rota.domain.spec import Overlap
from rota.operations.backends import Backends
from rota.ports.work import Beat, Fence
from rota.testing.builders import Scene, hello, outcome
from rota.testing.clock import FakeTicker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = FakeTicker()
    store = await open_sqlite(tmp_path / "rota.db", clock=clock)
    yield Scene(store, clock)
    await store.close()


@pytest.fixture
async def floor(scene: Scene, tmp_path: Path) -> AsyncIterator[Floor]:
    async with await open_files(tmp_path / "blobs") as blobs:
        backends = Backends(scene.store, LocalQueue(), blobs)
        yield Floor(backends, FloorConfig(lease=timedelta(seconds=30)))


async def test_slots_of_attempts_that_ended_elsewhere_are_free_after_a_beat(
    scene: Scene, floor: Floor
) -> None:
    job = await scene.job(overlap=Overlap.ALLOW)
    first, _ = await scene.trigger(job, 2)
    welcome = await floor.register(hello(slots=1))
    await floor.claim_for(welcome.session)
    await scene.store.finish(SessionId(welcome.session), [outcome(Fence(first, 1))])
    before = await floor.claim_for(welcome.session)

    await floor.beat(welcome.session, Beat())

    assert before == 0
    assert await floor.claim_for(welcome.session) == 1
