from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.access import ProjectSet
from rota.domain.ids import RunId, new_run_id
from rota.domain.run import AttemptResult, Run, Trigger
from rota.domain.spec import EXTERNAL_POOL
from rota.domain.states import RunState
from rota.ports.records import JobQuery, NewRun, RunQuery
from testkit.builders import MINUTE, Scene, new_job

pytestmark = pytest.mark.anyio


async def ids(scene: Scene, **fields: Any) -> list[str]:
    return [run.id for run in await scene.store.runs(RunQuery(**fields))]


async def test_runs_come_newest_first_page_by_page(scene: Scene) -> None:
    runs = await scene.trigger(await scene.job(), 5)

    first = await scene.store.runs(RunQuery(limit=3))
    rest = await scene.store.runs(RunQuery(limit=3, before_seq=first[-1].seq))

    assert [run.id for run in (*first, *rest)] == list(reversed(runs))


async def test_runs_are_found_by_job_state_trigger_and_time(scene: Scene) -> None:
    one, two = await scene.job("one"), await scene.job("two", next_at=scene.clock.instant)
    first, second = await scene.trigger(one, 2)
    worker = await scene.worker(slots=1)
    await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)
    later = scene.advance(MINUTE)
    third = (await scene.scheduled_run(two)).id

    assert await ids(scene, job_id=one) == [second, first]
    assert await ids(scene, job_like="t*") == [third]
    assert await ids(scene, states=[RunState.FAILED]) == [first]
    assert await ids(scene, states=[RunState.QUEUED]) == [third, second]
    assert await ids(scene, states=[RunState.QUEUED, RunState.FAILED], job_id=one) == [
        second,
        first,
    ]
    assert await ids(scene, trigger=Trigger.SCHEDULE) == [third]
    assert await ids(scene, since=later) == [third]
    assert await ids(scene, until=later) == [second, first]
    assert await ids(scene, project="other") == []


async def test_what_is_queued_where_nobody_serves_counts_as_blocked_for_who_asks_so(
    scene: Scene,
) -> None:
    one, other = await scene.job("one"), await scene.job("other", pool="other")
    (done, here), [there] = await scene.trigger(one, 2), await scene.trigger(other)
    [blocked] = await scene.trigger(await scene.job("held"))
    await scene.store.hold_run(blocked, actor="operator")
    worker = await scene.worker(slots=1)
    await scene.finish(worker, await scene.claim(worker))
    served = frozenset({"default"})

    assert await ids(scene, states=[RunState.QUEUED]) == [there, here]
    assert await ids(scene, states=[RunState.QUEUED], served=served) == [here]
    assert await ids(scene, states=[RunState.BLOCKED], served=served) == [blocked, there]
    ended = [RunState.COMPLETED]
    assert await ids(scene, states=[*ended, RunState.QUEUED], served=served) == [here, done]
    assert await ids(scene, states=[*ended, RunState.BLOCKED], served=served, job_id=one) == [done]
    assert await ids(scene, states=ended, served=()) == [done]
    both = [RunState.QUEUED, RunState.BLOCKED]
    assert await ids(scene, states=both, served=()) == [blocked, there, here]


async def test_so_it_is_for_the_runs_of_a_backfill(scene: Scene) -> None:
    job = await scene.job(next_at=scene.clock.instant)
    made = await scene.backfill(job, [scene.clock.instant - MINUTE])
    only = {"backfill": made.backfill.id, "served": frozenset({"other"})}

    [run] = await ids(scene, states=[RunState.BLOCKED], **only)

    assert await ids(scene, states=[RunState.QUEUED], **only) == []
    assert (await scene.show(run)).state is RunState.QUEUED


async def test_pools_are_served_while_a_worker_is_there_that_does_not_stop(scene: Scene) -> None:
    always = {EXTERNAL_POOL}  # what other systems do waits for no worker
    assert await scene.store.served_pools() == always

    worker, other = await scene.worker("a", pool="x"), await scene.worker("c", pool="y")
    await scene.worker("b", pool="x")
    assert await scene.store.served_pools() == {"x", "y"} | always

    await scene.store.renew(other, stopping=True)
    await scene.store.end_session(worker)
    assert await scene.store.served_pools() == {"x"} | always


async def test_runs_are_found_by_id_and_by_its_beginning(scene: Scene) -> None:
    job_id = await scene.job()
    [first] = await scene.trigger(job_id)
    scene.advance(timedelta(days=100))
    [second] = await scene.trigger(job_id)

    assert await ids(scene, ids=[first, second, RunId("r_nope")]) == [second, first]
    assert await ids(scene, id_prefix=first[:14]) == [first]
    assert await ids(scene, id_prefix="r_") == [first, second]
    assert await ids(scene, ids=[first], project="other") == []


async def test_active_runs_are_found_page_by_page(scene: Scene) -> None:
    runs = await scene.trigger(await scene.job(), 6)
    worker = await scene.worker(slots=2)
    await scene.finish(worker, await scene.claim(worker))
    active = [RunState.QUEUED, RunState.BLOCKED, RunState.SCHEDULED]

    page = await scene.store.runs(RunQuery(states=active, limit=2))
    rest = await ids(scene, states=active, before_seq=page[-1].seq)

    assert [run.id for run in page] + rest == list(reversed(runs[2:]))


async def test_counts_tell_what_waits_runs_and_has_ended(scene: Scene) -> None:
    await scene.trigger(await scene.job("plain"), 4)
    await scene.trigger(await scene.job("other", pool="gpu"))
    since = scene.clock.instant
    worker = await scene.worker(slots=2)
    works = await scene.claim(worker)
    await scene.finish(worker, works[:1])
    scene.advance(MINUTE)

    counts = await scene.store.counts()

    assert counts.runs == {
        ("QUEUED", "default"): 2,
        ("CLAIMED", "default"): 1,
        ("QUEUED", "gpu"): 1,
    }
    assert counts.oldest_queued_at == {"default": since, "gpu": since}
    assert counts.sessions == {("alive", "default"): 1}
    assert counts.finished == {("plain", "COMPLETED"): 1}


async def test_the_ledger_is_bounded_and_in_order(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant)
    start = scene.clock.instant
    for _ in range(4):
        await scene.scheduled_run(job_id)

    ledger = await scene.store.ledger(job_id, start + MINUTE, start + 5 * MINUTE, 2)
    newest = await scene.store.ledger(
        job_id, start + MINUTE, start + 5 * MINUTE, 2, newest_first=True
    )

    assert [entry.first for entry in ledger] == [start + MINUTE, start + 2 * MINUTE]
    assert [entry.first for entry in newest] == [start + 3 * MINUTE, start + 2 * MINUTE]


async def test_a_healthy_store_passes_its_check(scene: Scene) -> None:
    await scene.store.check()

    assert await scene.store.now() == scene.clock.instant


async def test_ids_have_the_names_that_people_use(scene: Scene) -> None:
    job_id = await scene.job("nightly")
    [run] = await scene.trigger(job_id)
    session = await scene.worker("ada")

    names = await scene.store.names([job_id, run, session, "r_nothing"])

    assert names == {job_id: "nightly", run: "nightly", session: "ada"}
    assert await scene.store.names([]) == {}


async def in_projects(scene: Scene, *projects: str) -> dict[str, list[RunId]]:
    """Two runs of a job in each project, in turn."""
    jobs = {}
    for project in projects:
        if project != "default":
            await scene.project(project)
        job = new_job("job", scene.clock.instant, project=project)
        await scene.store.save_jobs([job], removed=(), actor="editor")
        jobs[project] = job.id
    runs: dict[str, list[RunId]] = {project: [] for project in projects}
    for _ in range(2):
        for project, job_id in jobs.items():
            run = NewRun(new_run_id(scene.clock.instant), job_id, 1, Trigger.MANUAL, "user")
            runs[project] += (await scene.store.submit([run])).runs
    return runs


@pytest.mark.parametrize("states", [(), [RunState.QUEUED]], ids=["all", "active"])
async def test_runs_of_several_projects_come_newest_first_page_by_page(
    scene: Scene, states: list[RunState]
) -> None:
    runs = await in_projects(scene, "default", "etl", "web")
    every = [run for pair in zip(*runs.values(), strict=True) for run in pair][::-1]

    async def pages(project: ProjectSet) -> list[str]:
        found: list[Run] = []
        while True:
            before = found[-1].seq if found else None
            query = RunQuery(project, states=states, before_seq=before, limit=2)
            page = await scene.store.runs(query)
            found += page
            if not page:
                return [run.id for run in found]

    assert await pages(None) == every
    assert await pages(("etl", "web")) == [run for run in every if run not in runs["default"]]
    assert await pages("web") == runs["web"][::-1]
    assert await pages(()) == []


@pytest.mark.parametrize(
    ("project", "is_there"),
    [(None, True), (("etl", "web"), True), (("web",), False), ((), False), ("web", False)],
    ids=str,
)
async def test_a_run_is_found_by_its_id_and_backfill_in_several_projects(
    scene: Scene, project: ProjectSet, is_there: bool
) -> None:
    other = await scene.in_project("etl")
    job = await other.job(next_at=scene.clock.instant)
    made = await other.backfill(job, [scene.clock.instant - MINUTE])
    [run] = await ids(scene, project="etl")
    found = [run] if is_there else []

    assert await ids(scene, project=project, ids=[run, "r_none"]) == found
    for states in ((), (RunState.QUEUED, RunState.BLOCKED)):
        of_backfill = {"backfill": made.backfill.id, "states": states}
        assert await ids(scene, project=project, **of_backfill) == found


async def test_jobs_of_several_projects_are_listed_in_order(scene: Scene) -> None:
    await in_projects(scene, "default", "etl", "web")

    async def jobs(project: ProjectSet, after: tuple[str, str] = ("", "")) -> list[str]:
        query = JobQuery(project, after_project=after[0], after_name=after[1])
        return [job.project for job in await scene.store.jobs(query)]

    assert await jobs(None) == ["default", "etl", "web"]
    assert await jobs(("etl", "web"), ("etl", "job")) == ["web"]
    assert await jobs(()) == []


class TestCreators:
    async def test_a_run_is_of_who_asked_for_it(self, scene: Scene) -> None:
        job_id = await scene.job()
        await scene.trigger(job_id, 2)

        for query in (RunQuery(), RunQuery(states=[RunState.QUEUED]), RunQuery(job_id=job_id)):
            assert len(await scene.store.runs(replace(query, created_by="user"))) == 2
            assert await scene.store.runs(replace(query, created_by="editor")) == []

    async def test_one_that_a_schedule_made_is_of_who_made_its_job(self, scene: Scene) -> None:
        job_id = await scene.job(next_at=scene.clock.instant)
        run = await scene.scheduled_run(job_id)

        for query in (RunQuery(), RunQuery(states=[RunState.QUEUED]), RunQuery(job_id=job_id)):
            [found] = await scene.store.runs(replace(query, created_by="editor"))
            assert (found.id, found.created_by) == (run.id, "scheduler")
            assert await scene.store.runs(replace(query, created_by="scheduler")) == []

    async def test_so_it_is_in_any_project_and_over_all_of_them(self, scene: Scene) -> None:
        other = await scene.in_project("other")
        [run] = await other.trigger(await other.job())
        await scene.trigger(await scene.job())

        for states in ((), (RunState.QUEUED,), (RunState.QUEUED, RunState.COMPLETED)):
            mine = RunQuery(project="other", states=states, created_by="user")
            assert [each.id for each in await scene.store.runs(mine)] == [run]
            everywhere = replace(mine, project=None)
            assert len(await scene.store.runs(everywhere)) == 2
            assert await scene.store.runs(replace(everywhere, created_by="editor")) == []
            assert await scene.store.runs(replace(mine, project=("other", "third"))) != []
