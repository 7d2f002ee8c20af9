"""Projects: their names, their versions, and what a policy does to jobs that are there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.access import Role
from rota.domain.calendars import Calendar
from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import JobId
from rota.domain.keys import Limit, Quota
from rota.domain.policy import Policy
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.projects import NewProject
from rota.ports.records import JobQuery, NewCalendar, RunQuery
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene, new_job
from tests.conformance.store.conftest import every_way

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SHOP = NewProject("shop", "Web shop", {"timezone": "Europe/Berlin"})


async def change(scene: Scene, name: str, policy: Policy) -> None:
    [project] = await scene.store.projects([name])
    new = NewProject(name, policy=policy)
    await scene.store.change_project(new, expected_version=project.version, actor="admin")


async def names(scene: Scene) -> list[str]:
    return [project.name for project in await scene.store.projects()]


class TestLife:
    async def test_the_first_project_is_always_there(self, scene: Scene) -> None:
        assert await names(scene) == ["default"]
        with pytest.raises(Conflict) as refused:
            await scene.store.delete_project("default", actor="admin")
        assert refused.value.code == "project_is_default"

    async def test_a_project_is_what_was_said_about_it(self, scene: Scene) -> None:
        made = await scene.store.add_project(SHOP, actor="ann")
        scene.advance(MINUTE)
        said = replace(
            SHOP, title="Shop", policy=Policy(priority=5), policy_document={"priority": 5}
        )
        after = await scene.store.change_project(said, expected_version=1, actor="bob")

        assert (made.version, made.created_by, made.updated_by) == (1, "ann", "ann")
        assert (after.title, after.policy, after.version) == ("Shop", {"priority": 5}, 2)
        assert (after.created_by, after.updated_by) == ("ann", "bob")
        assert after.updated_at == scene.clock.instant
        assert await scene.store.projects(["shop", "none"]) == [after]

    async def test_a_name_is_never_given_twice(self, scene: Scene) -> None:
        await scene.project("shop")
        with pytest.raises(Conflict) as there:
            await scene.project("shop")
        assert await scene.store.delete_project("shop", actor="admin")
        with pytest.raises(Conflict) as gone:
            await scene.project("shop")

        assert {there.value.code, gone.value.code} == {"project_exists"}
        assert "never given twice" in gone.value.message
        assert not await scene.store.delete_project("shop", actor="admin")
        assert await names(scene) == ["default"]

    async def test_a_change_of_another_version_is_refused(self, scene: Scene) -> None:
        await scene.project("shop")
        await change(scene, "shop", Policy(priority=5))

        with pytest.raises(Conflict) as refused:
            await scene.store.change_project(SHOP, expected_version=1, actor="admin")
        with pytest.raises(NotFound):
            await scene.store.change_project(NewProject("no"), expected_version=1, actor="admin")

        assert refused.value.code == "etag_mismatch"

    async def test_events_carry_the_project(self, scene: Scene) -> None:
        await scene.project("shop")
        await change(scene, "shop", Policy(priority=5))
        await scene.store.delete_project("shop", actor="admin")

        told = [(event.kind, event.project) for event in await scene.store.events(0, 100)]

        assert told == [
            ("project.created", "shop"),
            ("project.changed", "shop"),
            ("project.deleted", "shop"),
        ]

    async def test_they_are_listed_by_name_in_parts(self, scene: Scene) -> None:
        for name in ("shop", "ops"):
            await scene.project(name)

        assert [it.name for it in await scene.store.projects(limit=2)] == ["default", "ops"]
        assert [it.name for it in await scene.store.projects(after="ops", limit=2)] == ["shop"]


class TestDeletion:
    async def refusal(self, scene: Scene) -> str:
        with pytest.raises(Conflict) as refused:
            await scene.store.delete_project("shop", actor="admin")
        assert refused.value.code == "project_in_use"
        return refused.value.message

    async def test_jobs_and_their_runs_keep_a_project(self, scene: Scene) -> None:
        await scene.project("shop")
        job = new_job("tidy", scene.clock.instant, project="shop")
        await scene.store.save_jobs([job], removed=(), actor="ann")

        assert await self.refusal(scene) == "project shop still has a job: tidy"

    async def test_calendars_and_limits_keep_a_project_and_a_quota_does_not(
        self, scene: Scene
    ) -> None:
        await scene.project("shop")
        calendar = NewCalendar("shop", Calendar("nights", ("daily 22:00-06:00",)))
        await scene.store.save_calendars([calendar], actor="ann")
        assert "calendar: nights" in await self.refusal(scene)
        await scene.store.delete_calendar("shop", "nights", expected_version=1, actor="ann")
        limit = Limit("shop", "mail", 1, MINUTE, 1)
        await scene.store.save_declarations([limit, Quota("shop", jobs=1)], actor="ann")
        assert "limit or resource: mail" in await self.refusal(scene)

        await scene.store.delete_declaration("rate", "shop", "mail", actor="ann")  # type: ignore[arg-type]

        assert await scene.store.delete_project("shop", actor="admin")
        assert await scene.store.declarations("shop") == []

    async def test_nobody_has_a_role_in_it_any_more(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.store.bind(await service(scene, "ci"), "shop", Role.EDITOR, actor="admin")

        await scene.store.delete_project("shop", actor="admin")

        assert await scene.store.bindings(principal="ci") == []

    async def test_nothing_is_saved_in_a_project_that_is_not_there(self, scene: Scene) -> None:
        job = new_job("tidy", scene.clock.instant, project="shop")

        with pytest.raises(NotFound) as refused:
            await scene.store.save_jobs([job], removed=(), actor="ann")

        assert refused.value.code == "project_not_found"
        assert await scene.store.jobs(JobQuery(project="shop")) == []


async def service(scene: Scene, name: str) -> str:
    """A program that has a token."""
    from rota.operations.tokens import create_token

    await create_token(scene.store, name=name, role=Role.VIEWER, actor="admin")
    await scene.store.unbind(name, "*", actor="admin")
    return name


async def long_job(scene: Scene, **rules: Any) -> JobId:
    return await scene.job(timeout=2 * HOUR, **rules)


class TestPolicy:
    """Jobs that ask for more than they may start nothing, until one of the two changes."""

    async def test_what_was_queued_waits_and_goes_on_when_the_policy_is_loosened(
        self, scene: Scene
    ) -> None:
        runs = await scene.trigger(await long_job(scene), 2)
        worker = await scene.worker()

        await change(scene, "default", Policy(timeout=HOUR))
        claimed = await scene.claim(worker)
        blocked = [await scene.show(run) for run in runs]
        await change(scene, "default", Policy(timeout=3 * HOUR))
        await scene.store.release_forgotten(100)
        await scene.release()

        assert claimed == []
        assert {run.state for run in blocked} == {RunState.BLOCKED}
        [reason] = blocked[0].reasons
        assert (reason.gate, reason.eligible_at) == ("policy", None)
        assert reason.message == (
            "the policy of project default does not let it start:"
            " timeout 2h is above 1h, the most that is allowed"
        )
        assert len(await scene.claim(worker)) == 2

    async def test_what_comes_later_waits_too(self, scene: Scene) -> None:
        await change(scene, "default", Policy(timeout=HOUR))
        job = await long_job(scene, next_at=scene.clock.instant + MINUTE, overlap=Overlap.ALLOW)

        due = await scene.scheduled_run(job)
        [asked] = await scene.trigger(job)

        assert due.state is RunState.BLOCKED
        assert (await scene.show(asked)).reasons[0].key == f"policy:{job}"

    async def test_an_edit_of_the_job_lets_its_runs_go(self, scene: Scene) -> None:
        job = await long_job(scene)
        await change(scene, "default", Policy(timeout=HOUR))
        [run] = await scene.trigger(job)

        await scene.change(job, timeout=HOUR)
        await scene.store.release_forgotten(100)
        await scene.release()

        assert await scene.state(run) is RunState.QUEUED

    async def test_live_runs_are_left_to_finish(self, scene: Scene) -> None:
        [run] = await scene.trigger(await long_job(scene))
        worker = await scene.worker()
        [work] = await scene.claim(worker)

        await change(scene, "default", Policy(timeout=HOUR))
        await scene.start(worker, [work])
        await scene.finish(worker, [work])

        assert await scene.state(run) is RunState.COMPLETED

    async def test_jobs_of_other_projects_and_within_the_policy_go_on(self, scene: Scene) -> None:
        await scene.project("shop")
        small = await scene.job("small", timeout=MINUTE)
        large = await long_job(scene)
        await scene.trigger(small)
        [waiting] = await scene.trigger(large)

        await change(scene, "shop", Policy(timeout=MINUTE))
        before = await scene.state(waiting)
        await change(scene, "default", Policy(timeout=HOUR))

        assert before is RunState.QUEUED
        runs = await scene.store.runs(RunQuery(limit=10))
        assert {run.job: run.state for run in runs} == {
            "small": RunState.QUEUED,
            "job": RunState.BLOCKED,
        }

    async def test_a_pause_is_told_before_the_policy(self, scene: Scene) -> None:
        job = await long_job(scene)
        await scene.move("paused", job)
        [run] = await scene.trigger(job)

        await change(scene, "default", Policy(timeout=HOUR))
        paused = await scene.show(run)
        await scene.move("resumed", job)
        await scene.release()
        resumed = await scene.show(run)

        assert paused.reasons[0].gate == "pause"
        assert resumed.reasons[0].gate == "policy"

    async def test_a_run_that_is_tried_again_keeps_to_the_new_policy(self, scene: Scene) -> None:
        from rota.domain.spec import Retry

        job = await long_job(scene, retry=Retry(attempts=2, delay=MINUTE))
        [run] = await scene.trigger(job)
        worker = await scene.worker()
        await scene.finish(worker, await scene.claim(worker), "failed")

        await change(scene, "default", Policy(timeout=HOUR))
        scene.advance(2 * MINUTE)
        await scene.release()

        assert (await scene.show(run)).reasons[0].key == f"policy:{job}"


class TestPools:
    async def test_a_pool_that_was_given_away_serves_nobody_else(self, scene: Scene) -> None:
        await scene.project("shop")
        [run] = await scene.trigger(await scene.job(pool="gpu"))
        [other] = await scene.trigger(await scene.job("other"))
        gpu = await scene.worker(pool="gpu")

        await scene.store.give_pool("gpu", ["shop"], actor="admin")
        claimed = await scene.claim(gpu)
        blocked = await scene.show(run)
        await scene.store.give_pool("gpu", [], actor="admin")
        await scene.store.release_forgotten(100)
        await scene.release()

        assert claimed == []
        [reason] = blocked.reasons
        assert (reason.gate, reason.message) == ("pool", "pool gpu was given to other projects")
        assert reason.action == (
            "name another pool, or let an admin give this one to default, too: rota pool list"
        )
        assert await scene.state(other) is RunState.QUEUED
        assert [work.run for work in await scene.claim(gpu)] == [run]

    async def test_it_is_for_those_who_were_given_it(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.worker(pool="gpu")

        await scene.store.give_pool("gpu", ["shop", "default"], actor="admin")
        [run] = await scene.trigger(await scene.job(pool="gpu"))

        assert await scene.state(run) is RunState.QUEUED
        facts = await scene.store.project_facts(["default", "shop"])
        assert {name: each.bounds.barred for name, each in facts.items()} == {
            "default": (),
            "shop": (),
        }

    async def test_a_new_project_may_not_use_pools_of_others(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.store.give_pool("gpu", ["shop"], actor="admin")

        await scene.project("ops", Policy(priority=5))

        facts = await scene.store.project_facts(["ops"])
        assert (facts["ops"].bounds.barred, facts["ops"].bounds.policy.priority) == (("gpu",), 5)

    async def test_policy_and_pools_are_kept_apart(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.store.give_pool("gpu", ["shop"], actor="admin")
        await change(scene, "default", Policy(priority=5))
        await scene.store.give_pool("arm", ["shop"], actor="admin")
        await change(scene, "default", Policy())

        facts = await scene.store.project_facts(["default"])
        assert (facts["default"].bounds.barred, facts["default"].bounds.policy) == (
            ("arm", "gpu"),
            Policy(),
        )

    async def test_those_are_closed_that_no_project_may_use(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.project("ops", Policy(pools=("default", "arm")))
        await scene.project("lab", Policy(pools=("gpu",)))
        for pool in ("default", "gpu", "arm", "x86"):
            await scene.worker(f"w-{pool}", pool=pool)
        await scene.store.give_pool("gpu", ["shop"], actor="admin")
        await scene.store.give_pool("later", ["ops"], actor="admin")

        closed = {
            projects: await scene.store.closed_pools(projects)
            for projects in (("default",), ("shop",), ("ops",), ("lab",), ("ops", "shop"))
        }

        assert closed == {
            ("default",): {"gpu", "later"},
            ("shop",): {"later"},
            ("ops",): {"gpu", "x86", "later"},
            ("lab",): {"default", "gpu", "arm", "x86", "later"},
            ("ops", "shop"): {"later"},
        }

    async def test_they_are_listed_with_their_workers_and_projects(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.worker("a", pool="gpu")
        await scene.worker("b")
        await scene.store.give_pool("gpu", ["shop"], actor="admin")
        await scene.store.give_pool("later", ["shop"], actor="admin")

        found = await scene.store.pools()

        assert [(pool.name, pool.workers, pool.projects) for pool in found] == [
            ("default", 1, ()),
            ("gpu", 1, ("shop",)),
            ("later", 0, ("shop",)),
        ]

    async def test_it_is_not_given_to_a_project_that_is_not_there(self, scene: Scene) -> None:
        with pytest.raises(NotFound) as refused:
            await scene.store.give_pool("gpu", ["shop"], actor="admin")

        assert refused.value.code == "project_not_found"

    async def test_a_deleted_project_leaves_its_pools_to_nobody(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.store.give_pool("gpu", ["shop"], actor="admin")

        await scene.store.delete_project("shop", actor="admin")

        facts = await scene.store.project_facts(["default"])
        assert facts["default"].bounds.barred == ("gpu",)


@every_way
async def test_a_pool_and_a_project_made_at_once_know_of_one_another(
    scene: Scene, store: SqlStore
) -> None:
    await scene.project("shop")

    async def give(pool: str) -> None:
        await store.give_pool(pool, ["shop"], actor="admin")

    made = [scene.project(f"p{number}") for number in range(5)]
    await asyncio.gather(*made, *(give(f"gpu{number}") for number in range(5)))

    facts = await store.project_facts([f"p{number}" for number in range(5)])
    assert {each.bounds.barred for each in facts.values()} == {tuple(f"gpu{n}" for n in range(5))}


@every_way
async def test_a_project_that_goes_takes_no_job_along(scene: Scene, store: SqlStore) -> None:
    """Either the job is refused, or the project stays."""
    for number in range(5):
        name = await scene.project(f"p{number}")
        job = new_job("tidy", scene.clock.instant, project=name)

        await asyncio.gather(
            store.save_jobs([job], removed=(), actor="ann"),
            store.delete_project(name, actor="admin"),
            return_exceptions=True,
        )

        is_there = bool(await store.projects([name]))
        assert is_there == bool(await store.jobs(JobQuery(project=name)))
