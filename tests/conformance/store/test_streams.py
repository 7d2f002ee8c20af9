"""A worker that connects anew: only the server it talks to now may claim for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.domain.errors import StaleStream
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.records import Session
from rota.ports.work import Hello
from testkit.builders import MINUTE, Scene, hello, outcome

pytestmark = pytest.mark.anyio


async def arrived(scene: Scene, server: str = "s_1") -> Session:
    return await scene.store.register(hello(), MINUTE, server)


async def test_a_worker_that_comes_back_has_the_next_stream_at_its_new_server(
    scene: Scene,
) -> None:
    first = await arrived(scene)
    now = scene.advance(MINUTE / 2)

    resumed = await scene.store.resume(hello(resumes=first.id), "s_2")

    assert resumed is not None
    assert (first.stream, first.server) == (1, "s_1")
    assert (resumed.id, resumed.stream, resumed.server) == (first.id, 2, "s_2")
    assert (resumed.beats, resumed.expires_at) == (1, now + MINUTE)


async def test_a_session_that_is_over_is_not_resumed(scene: Scene) -> None:
    session = await arrived(scene)
    await scene.store.end_session(session.id)

    assert await scene.store.resume(hello(resumes=session.id), "s_2") is None
    assert await scene.store.resume(hello(resumes="w_nope"), "s_2") is None


@pytest.mark.parametrize("other", [hello("other"), hello(pool="other")])
async def test_a_session_is_resumed_by_its_own_worker_in_its_own_pool_only(
    scene: Scene, other: Hello
) -> None:
    session = await arrived(scene)

    resumed = await scene.store.resume(replace(other, resumes=session.id), "s_2")

    assert resumed is None
    assert (await scene.store.renew(session.id, stopping=False)).stream == 1


async def test_a_former_server_claims_nothing(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    session = await arrived(scene)
    await scene.store.resume(hello(resumes=session.id), "s_2")

    with pytest.raises(StaleStream):
        await scene.claim(session.id, stream=1)

    assert await scene.state(run) is RunState.QUEUED
    [work] = await scene.claim(session.id, stream=2)
    assert work.run == run


async def test_a_former_server_s_report_counts_but_claims_nothing(scene: Scene) -> None:
    first, second = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 2)
    session = await arrived(scene)
    [work] = await scene.claim(session.id, 1)
    await scene.store.resume(hello(resumes=session.id), "s_2")

    finished = await scene.store.finish(session.id, [outcome(work)], claim=10, stream=1)

    assert (finished.accepted, finished.claimed) == ((work.fence,), ())
    assert await scene.states([first, second]) == [RunState.COMPLETED, RunState.QUEUED]


async def test_a_renewal_tells_the_latest_stream(scene: Scene) -> None:
    session = await arrived(scene)
    before = await scene.store.renew(session.id, stopping=False)
    await scene.store.resume(hello(resumes=session.id), "s_2")

    after = await scene.store.renew(session.id, stopping=False)

    assert (before.stream, after.stream) == (1, 2)
