"""Walls of jobs that ask for none, and pools that keep plain processes out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.policy import Policy
from rota.domain.spec import Isolation, Network
from rota.domain.states import RunState
from rota.domain.walls import NEW_CLUSTER, NEW_MACHINE, WallDefaults, Walls
from rota.ports.projects import NewProject, Pool
from rota.ports.work import Offer
from testkit.builders import Scene

pytestmark = pytest.mark.anyio

SANDBOX = (Offer("wall", "sandbox"), Offer("network", "sandbox/none"), Offer("limit", "memory"))
NO_SANDBOX = (Offer("wall", "process"), Offer("wall", "sandbox", "bubblewrap is not installed"))
BEHIND = Walls(isolation=(Isolation.SANDBOX,), network=("sandbox/none",))
WALLED: dict[str, Any] = {"walls": BEHIND}
LEASE = timedelta(seconds=30)


async def pools(scene: Scene) -> dict[str, Pool]:
    return {pool.name: pool for pool in await scene.store.pools()}


class TestSharedPools:
    async def test_a_second_project_closes_pools_to_processes(self, scene: Scene) -> None:
        await scene.store.settle_walls(NEW_MACHINE)
        worker = await scene.worker(offers=SANDBOX)
        process, walled = await scene.job(), await scene.job("walled", **WALLED)
        [alone], [behind] = await scene.trigger(process), await scene.trigger(walled)

        before = await pools(scene)
        await scene.project("shop")
        blocked = await scene.show(alone)

        assert not before["default"].refuses_processes
        assert (await pools(scene))["default"].refuses_processes
        assert blocked.state is RunState.BLOCKED
        assert blocked.reasons[0].message == (
            "plain processes may not run in pool default: several projects use it"
        )
        assert blocked.reasons[0].action == "rota pool set default --project default"
        assert [work.run for work in await scene.claim(worker)] == [behind]

    async def test_a_pool_of_one_project_runs_its_processes(self, scene: Scene) -> None:
        await scene.store.settle_walls(NEW_CLUSTER)
        shop = await scene.in_project("shop")
        own = await scene.worker(pool="own", functions=("send",))
        await scene.store.give_pool("own", ["shop"], actor="admin")

        [run] = await shop.trigger(await shop.job(pool="own"))
        [function] = await shop.trigger(await shop.job("f", pool="own", function="send"))
        [foreign] = await shop.trigger(await shop.job("g", function="send"))

        assert {work.run for work in await scene.claim(own)} == {run, function}
        [reason] = (await shop.show(foreign)).reasons
        assert reason.message.startswith("functions are plain processes, which may not run in pool")

    async def test_a_pool_of_two_projects_is_shared(self, scene: Scene) -> None:
        await scene.store.settle_walls(NEW_CLUSTER)
        await scene.project("shop")
        await scene.store.give_pool("own", ["shop"], actor="admin")
        shop = Scene(scene.store, scene.clock, "shop")
        await scene.worker(pool="own")
        [run] = await shop.trigger(await shop.job(pool="own"))

        await scene.store.give_pool("own", ["shop", "default"], actor="admin")

        assert await shop.state(run) is RunState.BLOCKED

    async def test_the_last_but_one_project_leaves_pools_to_the_other(self, scene: Scene) -> None:
        await scene.store.settle_walls(NEW_CLUSTER)
        await scene.project("shop")
        worker = await scene.worker()
        [run] = await scene.trigger(await scene.job())

        assert await scene.state(run) is RunState.BLOCKED
        await scene.store.delete_project("shop", actor="admin")
        await scene.store.release_forgotten(100)
        await scene.release()

        assert [work.run for work in await scene.claim(worker)] == [run]

    async def test_in_a_store_of_earlier_releases_a_pool_is_closed_one_by_one(
        self, scene: Scene
    ) -> None:
        await scene.project("shop")
        worker = await scene.worker()
        await scene.worker("gpu", pool="gpu")
        [run], [other] = (
            await scene.trigger(await scene.job()),
            await scene.trigger(await scene.job("other", pool="gpu")),
        )

        open_ = await scene.state(run)
        await scene.store.give_pool("default", None, actor="admin", is_private=True)
        closed = await scene.state(run), await scene.state(other)
        seen = (await pools(scene))["default"]
        await scene.store.give_pool("default", None, actor="admin", is_private=False)
        await scene.store.release_forgotten(100)
        await scene.release()

        assert (open_, closed) == (RunState.QUEUED, (RunState.BLOCKED, RunState.QUEUED))
        assert (seen.is_private, seen.refuses_processes) == (True, True)
        assert [work.run for work in await scene.claim(worker)] == [run]

    async def test_a_private_pool_of_the_only_project_runs_processes(self, scene: Scene) -> None:
        await scene.store.give_pool("default", None, actor="admin", is_private=True)
        worker = await scene.worker()
        [run] = await scene.trigger(await scene.job())

        assert [work.run for work in await scene.claim(worker)] == [run]

    async def test_a_policy_and_closed_pools_are_kept_apart(self, scene: Scene) -> None:
        await scene.store.settle_walls(NEW_CLUSTER)
        await scene.project("shop", Policy(priority=5))
        await scene.store.give_pool("own", ["shop"], actor="admin")

        bounds = await scene.store.project_facts(["shop", "default"])

        assert (bounds["shop"].bounds.own, bounds["shop"].bounds.policy.priority) == (("own",), 5)
        assert bounds["default"].bounds.own == ()


class TestUsersInContainers:
    async def test_root_goes_only_as_long_as_a_policy_allows_it(self, scene: Scene) -> None:
        walls = Walls(isolation=(Isolation.CONTAINER,), image="app", user="root")
        shop = await scene.in_project("shop")
        job = await shop.job(walls=walls)
        [refused] = await shop.trigger(job)

        [reason] = (await shop.show(refused)).reasons
        assert "user root in a container is not allowed" in reason.message
        allowing = NewProject("shop", policy=Policy(container_users=("root",)))
        await scene.store.change_project(allowing, expected_version=1, actor="admin")
        [allowed] = await shop.trigger(job)
        assert await shop.state(allowed) is RunState.QUEUED
        await scene.store.change_project(NewProject("shop"), expected_version=2, actor="admin")

        assert await shop.state(allowed) is RunState.BLOCKED


class TestDefaults:
    async def test_a_new_store_has_what_its_first_server_says(self, scene: Scene) -> None:
        assert await scene.store.wall_defaults() == WallDefaults()

        assert await scene.store.settle_walls(NEW_CLUSTER) == NEW_CLUSTER
        assert await scene.store.settle_walls(NEW_MACHINE) == NEW_CLUSTER
        assert await scene.store.wall_defaults() == NEW_CLUSTER

    async def test_they_are_changed_one_by_one(self, scene: Scene) -> None:
        await scene.store.settle_walls(NEW_CLUSTER)

        await scene.store.change_walls(None, Network.NONE, actor="ann")
        after = await scene.store.change_walls(Isolation.PROCESS, None, actor="ann")

        assert after == WallDefaults(Isolation.PROCESS, Network.NONE, has_shared_process=False)
        told = [event for event in await scene.store.events(0, 10) if event.kind == "walls.changed"]
        assert [event.data["network"] for event in told] == ["none", "none"]
