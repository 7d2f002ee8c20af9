"""Runs that ask for walls go to workers that offer them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rota.domain.resources import UNIT
from rota.domain.spec import Isolation
from rota.domain.states import RunState
from rota.domain.walls import Walls
from rota.ports.work import Offer
from testkit.builders import MINUTE, Scene, hello

pytestmark = pytest.mark.anyio

SANDBOX = (Offer("wall", "sandbox"), Offer("network", "sandbox/none"), Offer("limit", "memory"))
NO_SANDBOX = (Offer("wall", "process"), Offer("wall", "sandbox", "bubblewrap is not installed"))
BEHIND = Walls(isolation=(Isolation.SANDBOX,), network=("sandbox/none",))
WALLED: dict[str, Any] = {"walls": BEHIND}


async def test_a_run_waits_for_a_worker_with_its_wall(scene: Scene) -> None:
    old = await scene.worker("old")
    await scene.worker("plain", offers=NO_SANDBOX)
    [run] = await scene.trigger(await scene.job(**WALLED))

    [reason] = (await scene.show(run)).reasons
    assert await scene.claim(old) == []
    able = await scene.worker("able", offers=SANDBOX)
    await scene.store.release_fitting(100)
    await scene.release()

    assert reason.gate == "worker"
    assert reason.message.endswith("could ever take it: missing sandbox")
    assert await scene.claim(old) == []
    assert [work.run for work in await scene.claim(able)] == [run]


async def test_a_limit_that_no_worker_can_keep_is_waited_for(scene: Scene) -> None:
    await scene.worker("able", offers=SANDBOX)
    [run] = await scene.trigger(await scene.job(walls=replace(BEHIND, limited=("memory", "disk"))))

    [reason] = (await scene.show(run)).reasons

    assert reason.message.endswith("missing limit of disk")


async def test_a_plain_process_asks_for_nothing(scene: Scene) -> None:
    old = await scene.worker("old")
    [run] = await scene.trigger(await scene.job())

    assert [work.run for work in await scene.claim(old)] == [run]


async def test_a_run_that_asks_for_room_is_left_only_to_whom_it_fits(scene: Scene) -> None:
    """The other one has less left over, but no sandbox."""
    big = await scene.worker("big", resources={"cpu": 8 * UNIT}, offers=SANDBOX)
    await scene.worker("small", resources={"cpu": UNIT}, offers=NO_SANDBOX)
    [run] = await scene.trigger(await scene.job(**WALLED, resources={"cpu": UNIT}))

    assert [work.run for work in await scene.claim(big)] == [run]


async def test_offers_are_those_of_the_latest_hello(scene: Scene) -> None:
    session = await scene.worker("able", offers=NO_SANDBOX)
    [run] = await scene.trigger(await scene.job(**WALLED))
    back = hello("able", offers=SANDBOX, resumes=session)
    await scene.store.resume(back, "s", None)
    await scene.store.release_fitting(100)
    await scene.release()

    assert await scene.state(run) is RunState.QUEUED
    assert [work.run for work in await scene.claim(session, stream=2)] == [run]


async def test_what_only_another_pool_offers_is_waited_for(scene: Scene) -> None:
    await scene.worker("able", pool="gpu", offers=SANDBOX)
    await scene.worker("plain")
    [run] = await scene.trigger(await scene.job(**WALLED))
    scene.advance(MINUTE)

    assert await scene.state(run) is RunState.BLOCKED


async def test_a_run_waits_for_a_worker_whose_lease_is_long_enough(scene: Scene) -> None:
    usual = await scene.worker("usual", offers=[Offer("lease", "30")])
    [run] = await scene.trigger(await scene.job(lease=60 * MINUTE))

    [reason] = (await scene.show(run)).reasons
    assert reason.message.endswith("missing lease of 1h")
    patient = await scene.worker("patient", offers=[Offer("lease", "7200")])
    await scene.store.release_fitting(100)
    await scene.release()

    assert await scene.claim(usual) == []
    assert [work.run for work in await scene.claim(patient)] == [run]
