"""What a forecast reads of the store, and what is remembered of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.carts.definition import CartRules, Order, Share
from rota.domain.forecast.forecast import Outcome as Came
from rota.domain.ids import JobId, micros
from rota.domain.keys import Limit, Quota
from rota.domain.run import AttemptResult, Trigger
from rota.domain.states import RunState
from rota.ports.forecasts import PredictedStart, TokensLeft
from rota.ports.records import RemovedJob, ScheduleMove
from rota.ports.work import Outcome
from testkit.builders import MINUTE, Scene, reported
from testkit.cart_scenes import SUBMITTER, CartScene

pytestmark = pytest.mark.anyio

HOUR = 60 * MINUTE


async def coming(scene: Scene, ahead: timedelta = HOUR, limit: int = 100) -> list[str]:
    found = await scene.store.coming_jobs(scene.clock.instant + ahead, limit)
    return [job.name for job in found]


async def completed(scene: Scene, job: JobId, seconds: int) -> None:
    """A run of a job that took so long."""
    await scene.trigger(job)
    session = await scene.worker()
    [work] = await scene.claim(session)
    began, ended = scene.clock.instant, scene.advance(timedelta(seconds=seconds))
    end = Outcome(work.run, work.number, AttemptResult.COMPLETED, micros(began), micros(ended))
    await scene.store.finish(session, reported(end))


async def test_jobs_come_by_their_next_due_time(scene: Scene) -> None:
    now = scene.clock.instant
    await scene.job("second", next_at=now + 2 * MINUTE)
    await scene.job("first", next_at=now + MINUTE)
    await scene.job("far", next_at=now + 2 * HOUR)
    await scene.job("never")

    assert await coming(scene) == ["first", "second"]
    assert await coming(scene, limit=1) == ["first"]


async def test_jobs_whose_pause_ends_in_time_come_too(scene: Scene) -> None:
    due = scene.clock.instant + MINUTE
    for name, ends in (("soon", MINUTE), ("late", 2 * HOUR)):
        job = await scene.show_job(await scene.job(name, next_at=due))
        move = ScheduleMove(
            kind="paused",
            job_id=job.id,
            expected_schedule_version=job.schedule_version,
            expected_next_at=due,
            enabled=True,
            paused=True,
            next_at=None,
            held_from=due,
            paused_until=scene.clock.instant + ends,
        )
        await scene.store.move_schedules([move], actor="operator")

    [job_ahead] = await scene.store.coming_jobs(scene.clock.instant + HOUR, 10)

    assert (job_ahead.name, job_ahead.held_from, job_ahead.next_at) == ("soon", due, None)


async def test_open_runs_tell_where_they_stand(scene: Scene) -> None:
    job = await scene.job(timeout=MINUTE)
    first, second = await scene.trigger(job, 2)
    session = await scene.worker(slots=1)
    await scene.start(session, await scene.claim(session, 1))

    going, waiting = await scene.store.open_runs(10)

    assert (going.id, going.state, going.session) == (first, RunState.PROCESSING, session)
    assert going.began_at == scene.clock.instant
    assert (waiting.id, waiting.state, waiting.began_at) == (second, RunState.QUEUED, None)
    assert (waiting.pool, waiting.priority, waiting.timeout) == ("default", 5, 60.0)
    assert (waiting.trigger, waiting.created_at) == (Trigger.MANUAL, scene.clock.instant)
    assert [run.id for run in await scene.store.open_runs(1)] == [first]


async def test_a_run_that_has_ended_is_not_open(scene: Scene) -> None:
    await completed(scene, await scene.job(), 1)

    assert await scene.store.open_runs(10) == []


async def test_a_due_run_and_its_job_tell_the_due_time_before(scene: Scene) -> None:
    made_at = scene.clock.instant
    job = await scene.job("report", next_at=made_at + HOUR, after=("first",))
    [before] = await scene.store.coming_jobs(made_at + 9 * HOUR, 10)
    for _ in range(2):
        await scene.scheduled_run(job, every=HOUR)

    [after] = await scene.store.coming_jobs(made_at + 9 * HOUR, 10)
    dues = [run.previous_due for run in await scene.store.open_runs(10)]

    assert (before.created_at, before.answered_to) == (made_at, None)
    assert after.answered_to == made_at + 2 * HOUR
    assert dues == [made_at + HOUR]  # the run before was replaced


async def test_completions_are_those_of_followed_jobs(scene: Scene) -> None:
    first, alone = await scene.job("first"), await scene.job("alone")
    await scene.job("report", after=("first",))
    await completed(scene, first, 1)
    at = scene.clock.instant
    await completed(scene, alone, 1)
    await scene.store.follow_ends(10)

    assert await scene.store.completions(10) == {("default", "first"): at}
    assert await scene.store.followers("default", ["first", "alone"]) == {"first": ("report",)}


async def test_durations_are_those_of_the_newest_completed_runs(scene: Scene) -> None:
    job, other = await scene.job("job"), await scene.job("other")
    for seconds in (1, 2, 3):
        await completed(scene, job, seconds)
    await scene.trigger(job)
    session = await scene.worker()
    await scene.finish(session, await scene.claim(session), AttemptResult.FAILED)

    assert await scene.store.latest_durations([job, other], 50) == {job: [3.0, 2.0, 1.0]}
    assert await scene.store.latest_durations([job], 2) == {job: [3.0, 2.0]}


async def test_tokens_are_left_as_they_were_when_somebody_last_took_some(scene: Scene) -> None:
    limits = [Limit("default", name, 5, MINUTE, 5) for name in ("mail", "sms", "fax")]
    await scene.store.save_declarations(limits, actor="ann")
    session = await scene.worker()
    taken = {}
    for name in ("mail", "sms"):
        await scene.trigger(await scene.job(name, rate_limits={name: 2}))
        await scene.claim(session)
        taken[f"rate:default/{name}"] = TokensLeft(3.0, scene.clock.instant)
        scene.advance(MINUTE)

    assert await scene.store.tokens_left(10) == taken
    assert [*await scene.store.tokens_left(1)] == ["rate:default/sms"]


async def test_output_that_nobody_took_out_of_its_quota_yet_is_not_left(scene: Scene) -> None:
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")
    session = await scene.worker()
    await scene.trigger(await scene.job("loud"))
    await scene.finish(session, await scene.claim(session), output_bytes=1_500)

    [left] = (await scene.store.tokens_left(10)).values()

    assert left == TokensLeft(-501.0, scene.clock.instant)  # one byte when it was claimed


async def test_open_carts_tell_what_is_left_by_wave(scene: Scene, carts: CartScene) -> None:
    job = await scene.job("upgrade")
    rules = CartRules(Order.GROUPS, (Share(1), Share(2)))
    cart = await carts.submit(job, rules, items=5)
    await carts.advance(cart)

    [found] = await scene.store.open_carts(10)

    assert (found.id, found.job_id, found.created_by) == (cart, job, SUBMITTER)
    assert (found.open, found.waves, found.rules) == (1, (2, 2), rules)
    [limited] = await scene.store.open_carts(1)
    assert limited.waves == (2,)


async def test_predictions_are_held_against_the_first_start(scene: Scene) -> None:
    [run, other] = await scene.trigger(await scene.job(), 2)
    made_at = scene.clock.instant
    await scene.store.save_predictions(
        [PredictedStart(run, made_at + MINUTE), PredictedStart(other, made_at + MINUTE)]
    )
    await scene.store.save_predictions([PredictedStart(run, made_at + HOUR)])  # too late
    actual = scene.advance(2 * MINUTE)
    session = await scene.worker(slots=1)
    await scene.start(session, await scene.claim(session, 1))

    expected = [Came(made_at, made_at + MINUTE, actual)]
    assert await scene.store.predicted_starts(made_at, 10) == expected
    assert await scene.store.predicted_starts(made_at + MINUTE, 10) == []

    await scene.store.forget_predictions(made_at + MINUTE)
    assert await scene.store.predicted_starts(made_at, 10) == []


class TestGroups:
    """Projects whose runs compete for workers with one another, and with nobody else's."""

    async def own(self, scene: Scene, project: str, *pools: str, users: str = "") -> Scene:
        """A project with a job in each of these pools, which are given to it and others."""
        for name in {project, *users.split()} - {"default"}:
            if not await scene.store.existing_projects([name]):
                await scene.project(name)
        mine = replace(scene, home=project)
        for pool in pools:
            await mine.job(f"in-{pool}", pool=pool)
            await scene.store.give_pool(pool, [project, *users.split()], actor="root")
        return mine

    async def group(self, scene: Scene, project: str) -> tuple[set[str], set[str]] | None:
        found = await scene.store.pool_group(project)
        return None if found is None else ({*found.projects}, {*found.pools})

    async def test_a_project_with_pools_of_its_own_is_one(self, scene: Scene) -> None:
        await self.own(scene, "shop", "gpu", "cpu")
        await self.own(scene, "web", "big")

        assert await self.group(scene, "shop") == ({"shop"}, {"gpu", "cpu"})

    async def test_whoever_may_use_a_pool_belongs_to_it_with_all_of_their_pools(
        self, scene: Scene
    ) -> None:
        await self.own(scene, "shop", "gpu", users="web")
        await self.own(scene, "web", "big", users="ops")
        await self.own(scene, "far", "away")

        assert await self.group(scene, "shop") == ({"shop", "web", "ops"}, {"gpu", "big"})
        assert await self.group(scene, "web") == ({"web", "ops"}, {"big"})

    @pytest.mark.parametrize("shared", ["its own", "another's", "none"])
    async def test_whoever_uses_a_pool_that_is_for_all_belongs_to_all(
        self, scene: Scene, shared: str
    ) -> None:
        mine = await self.own(scene, "shop", *["gpu"] * (shared != "none"), users="web")
        if shared == "its own":
            await mine.job("open")
        if shared == "another's":
            await replace(scene, home="web").job("open")

        assert await self.group(scene, "shop") is None

    async def test_the_project_of_most_is_in_none(self, scene: Scene) -> None:
        await self.own(scene, "shop", "gpu", users="default")

        assert await self.group(scene, "shop") is None
        assert await self.group(scene, "default") is None

    async def test_a_job_that_was_deleted_names_no_pool(self, scene: Scene) -> None:
        mine = await self.own(scene, "shop", "gpu")
        job = await mine.job("gone")
        assert await self.group(scene, "shop") is None
        await scene.store.save_jobs([], removed=[RemovedJob(job)], actor="ann")

        assert await self.group(scene, "shop") == ({"shop"}, {"gpu"})

    async def test_nothing_of_others_is_read(self, scene: Scene, carts: CartScene) -> None:
        due = scene.clock.instant + MINUTE
        every_project = (await scene.in_project("shop"), await scene.in_project("web"), scene)
        for each in every_project:
            await completed_and_followed(each)
        await scene.store.follow_ends(10)
        for each in every_project:
            await each.trigger(await each.job("soon", next_at=due))
        await carts.submit(await scene.job("upgrade"), CartRules(), items=2)
        store, until, mine = scene.store, scene.clock.instant + HOUR, {"shop"}

        jobs = await store.coming_jobs(until, 100, mine)
        runs = await store.open_runs(100, mine)

        every = await store.coming_jobs(until, 100)
        assert {job.id for job in jobs} == {job.id for job in every if job.project == "shop"}
        assert {job.name for job in jobs} == {"soon", "follows"}
        assert [run.id for run in runs] == [
            run.id for run in await store.open_runs(100) if run.project == "shop"
        ]
        assert len(runs) == 1
        assert await store.open_carts(100) != []
        assert await store.open_carts(100, mine) == []
        assert {key[0] for key in await store.completions(100, mine)} == mine

    async def test_predictions_are_those_of_its_own_newest_runs(self, scene: Scene) -> None:
        for name in ("shop", "web"):
            each = await scene.in_project(name)
            runs = await each.trigger(await each.job(pool=name), 3)
            await scene.store.save_predictions(
                [PredictedStart(run, scene.clock.instant) for run in runs]
            )
            session = await each.worker(f"worker-{name}", pool=name)
            await each.start(session, await each.claim(session))
        since = scene.clock.instant - HOUR

        assert len(await scene.store.predicted_starts(since, 100)) == 6
        assert len(await scene.store.predicted_starts(since, 100, {"shop"})) == 3
        assert len(await scene.store.predicted_starts(since, 2, {"shop"})) == 2
        assert len(await scene.store.predicted_starts(since, 100, {"shop", "web"})) == 6
        assert await scene.store.predicted_starts(scene.clock.instant + HOUR, 9, {"shop"}) == []


async def completed_and_followed(scene: Scene) -> None:
    """A job that has completed, and one that follows it."""
    job = await scene.job("first")
    await scene.job("follows", after=("first",), next_at=scene.clock.instant + HOUR)
    await scene.trigger(job)
    session = await scene.worker(f"worker-{scene.home}")
    await scene.finish(session, await scene.claim(session))
