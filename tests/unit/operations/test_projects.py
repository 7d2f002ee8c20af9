"""What projects make of the jobs of a file: defaults, policy, and whether they are there at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.jobfile.export import Change
from rota.operations import definitions, runs
from rota.operations.projects import (
    ProjectEdit,
    change_project,
    create_project,
    patched,
    plan_project,
)
from rota.operations.runs import TriggerOptions
from rota.operations.why import why
from rota.ports.records import JobQuery
from tests.unit.operations.test_forecasts import runs_ahead
from tests.unit.operations.test_planned_limits import apply, file_of, job
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def say(timeline: Timeline, name: str = "default", **said: Any) -> None:
    await change_project(timeline.engine, name, ProjectEdit(**said), actor="root")


async def refusals(timeline: Timeline, *jobs: dict[str, Any], **fields: Any) -> list[str]:
    with pytest.raises(Invalid) as refused:
        await apply(timeline, file_of(*jobs, **fields))
    return [f"{problem.path}  {problem.message}" for problem in refused.value.problems]


class TestUnknownProjects:
    @pytest.mark.parametrize("is_admin", [False, True])
    async def test_a_file_never_creates_one(self, timeline: Timeline, is_admin: bool) -> None:
        for file in (file_of(job(), project="etl"), file_of(job(project="etl"))):
            for act in (
                definitions.plan(timeline.engine, file, is_admin=is_admin),
                definitions.apply(timeline.engine, file, actor="ann", is_admin=is_admin),
            ):
                with pytest.raises(NotFound) as refused:
                    await act
                assert (refused.value.code, refused.value.hint) == (
                    "project_not_found",
                    "an installation admin makes it: rota project create etl",
                )
        assert await timeline.store.jobs(JobQuery(project="etl")) == []

    async def test_one_that_is_there_takes_jobs(self, timeline: Timeline) -> None:
        await create_project(timeline.engine, "etl", ProjectEdit(), actor="root")

        await apply(timeline, file_of(job(), project="etl"))

        assert len(await timeline.store.jobs(JobQuery(project="etl"))) == 1

    async def test_submitting_is_refused_alike(self, timeline: Timeline) -> None:
        with pytest.raises(NotFound):
            await runs.submit_file(timeline.engine, file_of(job(), project="etl"), actor="ann")


class TestDefaults:
    async def test_the_plan_shows_what_is_merged(self, timeline: Timeline) -> None:
        await apply(timeline, file_of(job()))
        await say(timeline, defaults={"timeout": "1h", "labels": {"team": "etl"}})

        plan = await definitions.plan(timeline.engine, file_of(job()))
        stored = await timeline.job("dump")
        await apply(timeline, file_of(job()))

        [change] = plan.changes
        assert change.change is Change.CHANGED
        assert change.differences == ('labels  (none) → {"team": "etl"}', "timeout  (none) → 1h")
        assert "timeout" not in stored.document  # a change counts from the next apply
        assert (await timeline.job("dump")).document["timeout"] == "1h"

    async def test_a_plan_made_with_other_defaults_is_not_applied(self, timeline: Timeline) -> None:
        plan = await definitions.plan(timeline.engine, file_of(job()))
        await say(timeline, defaults={"timeout": "1h"})

        with pytest.raises(Conflict) as refused:
            await apply(timeline, file_of(job()), if_match=plan.etag)

        assert refused.value.code == "etag_mismatch"

    async def test_a_policy_is_checked_after_the_defaults(self, timeline: Timeline) -> None:
        await say(timeline, defaults={"timeout": "2h"}, policy={"timeout": "1h"})

        assert await refusals(timeline, job()) == [
            "jobs[0]  dump: timeout 2h is above 1h, the most that is allowed"
            " by the policy of project default"
        ]
        await apply(timeline, file_of(job(timeout="30m")))

    async def test_a_calendar_by_default_is_used(self, timeline: Timeline) -> None:
        calendars = [{"name": "nights", "windows": ["daily 22:00-06:00"]}]
        await say(timeline, defaults={"calendars": ["nights"]})

        with pytest.raises(Invalid) as refused:
            await apply(timeline, file_of(job()))
        await apply(timeline, file_of(job(), calendars=calendars))

        assert "nights" in str(refused.value.problems[0])


class TestPolicy:
    async def test_every_fault_is_told_where_it_is(self, timeline: Timeline) -> None:
        await say(timeline, policy={"priority": 5, "resources": {"cpu": 2}, "pools": ["default"]})

        found = await refusals(
            timeline, job(priority=6), job("big", resources={"cpu": 3}), job("far", pool="gpu")
        )

        assert [line.partition("  ")[0] for line in found] == [
            "jobs[0].priority",
            "jobs[1].resources.cpu",
            "jobs[2].pool",
        ]
        assert await timeline.store.jobs(JobQuery()) == []

    async def test_other_projects_have_their_own(self, timeline: Timeline) -> None:
        await create_project(timeline.engine, "etl", ProjectEdit(), actor="root")
        await say(timeline, policy={"priority": 5})

        await apply(timeline, file_of(job(priority=9), project="etl"))

        assert len(await timeline.store.jobs(JobQuery(project="etl"))) == 1

    async def test_a_pool_of_others_is_refused(self, timeline: Timeline) -> None:
        await create_project(timeline.engine, "etl", ProjectEdit(), actor="root")
        await timeline.store.give_pool("gpu", ["etl"], actor="root")

        [found] = await refusals(timeline, job(pool="gpu"))
        await apply(timeline, file_of(job(pool="gpu"), project="etl"))

        assert "pool gpu was given to other projects" in found

    async def test_priorities_of_single_runs_keep_to_it(self, timeline: Timeline) -> None:
        engine = timeline.engine
        await apply(timeline, file_of(job()))
        run, _ = await runs.trigger(
            engine, await timeline.job("dump"), TriggerOptions({}, priority=7), actor="ann"
        )
        await say(timeline, policy={"priority": 6})

        for act in (
            runs.trigger(
                engine, await timeline.job("dump"), TriggerOptions({}, priority=7), actor="ann"
            ),
            runs.set_priority(engine, run, 9, actor="ann"),
        ):
            with pytest.raises(Invalid) as refused:
                await act
            assert refused.value.code == "policy_exceeded"
        await runs.set_priority(engine, run, 6, actor="ann")

    async def test_why_and_the_forecast_tell_of_a_job_that_it_keeps_from_starting(
        self, timeline: Timeline
    ) -> None:
        await timeline.apply("every 1m", name="dump", timeout="2h")
        before = await runs_ahead(timeline, HOUR, "dump")
        await say(timeline, policy={"timeout": "1h"})
        run, _ = await runs.trigger(
            timeline.engine, await timeline.job("dump"), TriggerOptions({}), actor="ann"
        )

        told = await why(timeline.engine, run)
        after = await runs_ahead(timeline, HOUR, "dump")

        assert told.reasons[0].gate == "policy"
        assert told.reasons[0].action == "rota project show default"
        assert before
        assert after == []


class TestEdits:
    async def test_what_is_not_named_stays_and_null_takes_away(self, timeline: Timeline) -> None:
        await say(timeline, title="All", policy={"priority": 5, "resources": {"cpu": 2}})

        await say(timeline, policy={"priority": None, "resources": {"memory": "1GiB"}})

        [project] = await timeline.store.projects(["default"])
        assert (project.title, project.policy) == (
            "All",
            {"resources": {"cpu": 2, "memory": "1GiB"}},
        )

    async def test_the_plan_writes_nothing(self, timeline: Timeline) -> None:
        edit = ProjectEdit(policy={"priority": 5})

        planned = await plan_project(timeline.engine, "default", edit)
        [untouched] = await timeline.store.projects(["default"])
        made = await change_project(timeline.engine, "default", edit, actor="root")
        again = await change_project(timeline.engine, "default", edit, actor="root")

        assert planned.differences == made.differences == ("policy.priority  (none) → 5",)
        assert (untouched.version, made.version, again.version) == (1, 2, 2)
        assert again.change is Change.UNCHANGED

    async def test_jobs_that_a_policy_stops_are_told_beforehand(self, timeline: Timeline) -> None:
        await apply(timeline, file_of(job("big", priority=9), job("small")))
        edit = ProjectEdit(policy={"priority": 5})

        planned = await plan_project(timeline.engine, "default", edit)
        made = await change_project(timeline.engine, "default", edit, actor="root")
        loosened = ProjectEdit(policy={"priority": None})

        assert planned.stops == made.stops == ("big",)
        assert (await plan_project(timeline.engine, "default", loosened)).stops == ()

    async def test_an_edit_of_another_version_is_refused(self, timeline: Timeline) -> None:
        await say(timeline, title="a")

        with pytest.raises(Conflict) as refused:
            await say(timeline, title="b", expected_version=1)

        assert refused.value.code == "etag_mismatch"

    def test_patches_are_merged_as_rfc_7396_has_it(self) -> None:
        assert patched({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"d": 2}, "e": {"f": None}}) == {
            "b": {"c": 1, "d": 2},
            "e": {},
        }
