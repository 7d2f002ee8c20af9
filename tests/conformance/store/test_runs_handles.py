"""Remote handles: who may keep one, who gets it, and what it means for a run that is done once."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.ids import SessionId
from rota.domain.spec import Delivery
from rota.domain.states import RunState
from rota.ports.work import Fence, RemoteHandle, Work
from testkit.builders import Scene

pytestmark = pytest.mark.anyio

HANDLE = '{"taken":{"answer:/id":"7"}}'


async def claimed(scene: Scene, **rules: Any) -> tuple[SessionId, Work]:
    worker = await scene.worker()
    await scene.trigger(await scene.job(**rules))
    [work] = await scene.claim(worker)
    return worker, work


async def keep(scene: Scene, worker: SessionId, work: Work | Fence, handle: str = HANDLE) -> bool:
    """Whether the store has taken it."""
    item = RemoteHandle(work.run, work.number, handle)
    return not await scene.store.keep_handles(worker, [item])


async def test_the_next_attempt_gets_what_the_one_before_kept(scene: Scene) -> None:
    worker, work = await claimed(scene)
    assert work.handle is None

    assert await keep(scene, worker, work)
    await scene.vanish(worker)
    await scene.release()
    [again] = await scene.claim(await scene.worker("second"))

    assert again.handle == HANDLE
    assert (await scene.show(work.run)).handle == {"taken": {"answer:/id": "7"}}


async def test_many_handles_are_kept_at_once(scene: Scene) -> None:
    worker = await scene.worker(slots=3)
    await scene.trigger(await scene.job(), count=3)
    works = await scene.claim(worker, 3)

    items = [RemoteHandle(work.run, work.number, f'"{work.run}"') for work in reversed(works)]
    refused = await scene.store.keep_handles(worker, items)

    assert not refused
    assert [(await scene.show(work.run)).handle for work in works] == [work.run for work in works]


async def test_work_that_is_over_is_not_gone_on_with(scene: Scene) -> None:
    worker, work = await claimed(scene)
    await keep(scene, worker, work)

    assert await keep(scene, worker, work, "")
    await scene.vanish(worker)

    await scene.release()
    [again] = await scene.claim(await scene.worker("second"))
    assert again.handle is None


async def test_who_has_not_the_attempt_keeps_nothing(scene: Scene) -> None:
    worker, work = await claimed(scene)
    other = await scene.worker("other", slots=1)

    assert not await keep(scene, other, work)
    assert not await keep(scene, worker, Fence(work.run, work.number + 1))
    await scene.vanish(worker)
    assert not await keep(scene, worker, work)

    await scene.release()
    [again] = await scene.claim(await scene.worker("second"))
    assert again.handle is None


@pytest.mark.parametrize(
    ("has_handle", "state"), [(True, RunState.SCHEDULED), (False, RunState.UNKNOWN)]
)
async def test_what_is_done_once_is_gone_on_with_only_by_its_handle(
    scene: Scene, has_handle: bool, state: RunState
) -> None:
    worker, work = await claimed(scene, delivery=Delivery.AT_MOST_ONCE)
    await scene.start(worker, [work])
    if has_handle:
        await keep(scene, worker, work)

    await scene.vanish(worker)

    assert (await scene.show(work.run)).state is state
