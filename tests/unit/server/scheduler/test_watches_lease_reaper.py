from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.ids import SessionId
from rota.domain.states import RunState
from rota.server.scheduler.watches import LeaseReaper
from rota.store import sessions
from testkit.clock import FakeClock, FakeTicker
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
LEASE = 30 * SECOND


async def is_alive(timeline: Timeline, session: SessionId) -> bool:
    return session in {each.id for each in await timeline.store.sessions(alive_only=True)}


@pytest.fixture
def node(timeline: Timeline) -> FakeTicker:
    """The clock of the reaper's own machine."""
    return FakeTicker()


@pytest.fixture
def reaper(timeline: Timeline, node: FakeTicker) -> LeaseReaper:
    return LeaseReaper(timeline.engine, FakeClock(node))


@pytest.fixture
async def session(timeline: Timeline) -> SessionId:
    return await timeline.scene.worker("mortal", lease=LEASE)


async def test_a_worker_that_is_silent_for_its_lease_loses_its_runs(
    timeline: Timeline, node: FakeTicker, reaper: LeaseReaper, session: SessionId
) -> None:
    job = await timeline.apply(None)
    [run] = await timeline.scene.trigger(job.id)
    await timeline.scene.claim(session)
    await reaper.run_once()

    node.advance(LEASE + SECOND)
    timeline.be_down(LEASE + SECOND)

    assert await reaper.run_once() == 1
    assert not await is_alive(timeline, session)
    assert await timeline.scene.state(run) is RunState.SCHEDULED  # for its next attempt


async def test_a_worker_is_found_dead_however_many_came_after_it(
    timeline: Timeline,
    node: FakeTicker,
    reaper: LeaseReaper,
    session: SessionId,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_MAX_SESSIONS", 2)
    timeline.be_down(SECOND)
    later = [await timeline.scene.worker(f"later-{n}", lease=LEASE) for n in range(2)]
    await reaper.run_once()
    node.advance(LEASE + SECOND)
    timeline.be_down(LEASE + SECOND)
    for each in later:
        await timeline.store.renew(each, stopping=False)

    assert await reaper.run_once() == 1
    assert not await is_alive(timeline, session)


async def test_a_worker_that_beats_is_left_alone(
    timeline: Timeline, node: FakeTicker, reaper: LeaseReaper, session: SessionId
) -> None:
    for _ in range(5):
        await reaper.run_once()
        node.advance(LEASE / 2)
        timeline.be_down(LEASE / 2)
        await timeline.store.renew(session, stopping=False)

    assert await reaper.run_once() == 0
    assert await is_alive(timeline, session)


async def test_a_store_whose_clock_jumps_takes_no_worker(
    timeline: Timeline, node: FakeTicker, reaper: LeaseReaper, session: SessionId
) -> None:
    await reaper.run_once()
    node.advance(LEASE * 2 / 3)
    await timeline.store.renew(session, stopping=False)
    await reaper.run_once()

    timeline.be_down(10 * LEASE)
    node.advance(LEASE * 2 / 3)

    assert await reaper.run_once() == 0
    assert await is_alive(timeline, session)


async def test_a_node_whose_clock_jumps_takes_no_worker(
    timeline: Timeline, node: FakeTicker, reaper: LeaseReaper, session: SessionId
) -> None:
    await reaper.run_once()

    node.advance(10 * LEASE)
    timeline.be_down(LEASE)

    assert await reaper.run_once() == 0
    assert await is_alive(timeline, session)


async def test_a_server_that_has_just_come_waits_a_lease(
    timeline: Timeline, reaper: LeaseReaper, session: SessionId
) -> None:
    timeline.be_down(10 * LEASE)

    assert await reaper.run_once() == 0
    assert await is_alive(timeline, session)
