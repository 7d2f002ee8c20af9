from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.ids import JobId
from rota.domain.jobfile import read_job
from rota.operations.specs import SpecCache
from testkit.builders import Scene, new_job
from testkit.clock import START, FakeTicker
from testkit.new_stores import open_new_sqlite

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = FakeTicker()
    store = await open_new_sqlite(tmp_path / "rota.db", clock=clock)
    yield Scene(store, clock)
    await store.close()


async def test_a_book_forgets_what_was_not_used_for_longest(scene: Scene) -> None:
    first, second, third = [(await scene.job(name), 1) for name in ("a", "b", "c")]
    cache = SpecCache(capacity=2)
    await cache.find(scene.store, [first, second])
    await cache.find(scene.store, [first])

    found = await cache.find(scene.store, [third])

    assert (set(found), len(cache)) == ({third}, 2)
    assert set(await cache.find(scene.store, [first, second])) == {first, second}


async def test_more_than_it_remembers_is_found_all_the_same(scene: Scene) -> None:
    refs = {(await scene.job(str(number)), 1) for number in range(5)}
    cache = SpecCache(capacity=2)

    found = await cache.find(scene.store, refs)

    assert (set(found), len(cache)) == (refs, 2)


async def test_what_is_remembered_is_not_read_again(scene: Scene) -> None:
    elsewhere = (JobId("j_elsewhere"), 1)  # the store has no such job
    spec = read_job({"name": "a", "steps": [{"run": "true"}]})
    cache = SpecCache()
    cache.remember(elsewhere, spec)

    found = await cache.find(scene.store, [elsewhere])

    assert found == {elsewhere: spec}


async def test_what_cannot_be_read_is_left_out(scene: Scene) -> None:
    readable = (await scene.job("a"), 1)
    new = replace(new_job("b", START), document={"name": "b", "nonsense": 1})
    await scene.store.save_jobs([new], removed=(), actor="test")
    unreadable = (new.id, 1)
    cache = SpecCache()

    found = await cache.find(scene.store, [readable, unreadable])

    assert (set(found), len(cache)) == ({readable}, 1)


async def test_a_job_that_changed_is_read_again(scene: Scene) -> None:
    job = await scene.show_job(await scene.job())
    cache = SpecCache()
    old = cache.of(job)

    new = cache.of(replace(job, version=2, document={**job.document, "timeout": "5m"}))

    assert cache.of(replace(job, document={})) is old
    assert (old.timeout, new.timeout) == (None, timedelta(minutes=5))
