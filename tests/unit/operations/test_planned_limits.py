"""What applying a file does to limits and resources, and which demands of jobs it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Conflict, Invalid
from rota.domain.jobfile import JobFile, read_file
from rota.domain.jobfile.export import Change
from rota.domain.keys import Declaration, Limit, Quota, Resource
from rota.operations import definitions, runs
from rota.operations.definitions import Plan
from rota.operations.engine import Pools
from rota.operations.projects import give_pool
from rota.operations.runs import TriggerOptions
from rota.ports.records import JobQuery
from testkit.builders import hello
from testkit.identity import make_project
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

S3 = {"name": "s3-put", "tokens": 10, "per": "1s"}
LICENCE = {"name": "pg-license", "total": 4}


def job(name: str = "dump", **fields: Any) -> dict[str, Any]:
    return {"name": name, "steps": [{"run": "true"}], **fields}


def file_of(*jobs: dict[str, Any], **fields: Any) -> JobFile:
    return read_file(json.dumps({"jobs": list(jobs), **fields}, indent=1), name="jobs")


async def apply(timeline: Timeline, file: JobFile, **options: Any) -> Plan:
    return await definitions.apply(timeline.engine, file, actor="ann", **options)


async def join(timeline: Timeline, resources: dict[str, int], **labels: str) -> None:
    """A worker that offers something comes."""
    new = hello("w-2", resources=resources, labels=labels)
    await timeline.store.register(new, timedelta(seconds=30))


async def declared(timeline: Timeline) -> list[Declaration]:
    return [each.declaration for each in await timeline.store.declarations("default")]


async def refusal(timeline: Timeline, *jobs: dict[str, Any], **fields: Any) -> str:
    """Why the file is refused, which has one fault; nothing of it is saved."""
    before = await declared(timeline), await timeline.store.jobs(JobQuery())
    with pytest.raises(Invalid) as refused:
        await apply(timeline, file_of(*jobs, **fields))
    assert (await declared(timeline), await timeline.store.jobs(JobQuery())) == before
    [problem] = refused.value.problems
    assert problem.line is not None
    return f"{problem.path}  {problem.message} — {problem.hint}"


async def test_declarations_are_planned_and_then_saved_with_the_jobs(timeline: Timeline) -> None:
    file = file_of(
        job(rate_limits=["s3-put"], resources={"pg-license": 2}), limits=[S3], resources=[LICENCE]
    )

    planned = await definitions.plan(timeline.engine, file)
    saved_by_planning = await declared(timeline)
    await apply(timeline, file)

    [limit], [resource] = planned.limits, planned.resources
    assert (limit.change, limit.words) == (Change.NEW, "10 tokens per 1s, burst 10")
    assert (resource.change, resource.words) == (Change.NEW, "4 in all")
    assert saved_by_planning == []
    assert await declared(timeline) == [
        Limit("default", "s3-put", 10, timedelta(seconds=1), 10),
        Resource("default", "pg-license", 4),
    ]


async def test_applying_it_again_changes_nothing(timeline: Timeline) -> None:
    file = file_of(job(resources={"pg-license": 1}), limits=[S3], resources=[LICENCE])
    await apply(timeline, file)

    again = await apply(timeline, file)

    assert [each.change for each in again.changes] == [Change.UNCHANGED]
    declared = (*again.limits, *again.resources)
    assert [each.change for each in declared] == [Change.UNCHANGED] * 2


async def test_a_changed_declaration_is_told_and_voids_older_plans(timeline: Timeline) -> None:
    await apply(timeline, file_of(resources=[LICENCE]))
    wanted = file_of(job(resources={"pg-license": 1}), resources=[LICENCE | {"total": 5}])
    planned = await definitions.plan(timeline.engine, wanted)

    await timeline.store.save_declarations([Resource("default", "pg-license", 3)], actor="bob")

    assert planned.resources[0].differences == ("total  4 → 5",)
    with pytest.raises(Conflict):
        await apply(timeline, wanted, if_match=planned.etag)


async def test_pruning_leaves_what_others_may_share(timeline: Timeline) -> None:
    await apply(timeline, file_of(job(), limits=[S3], resources=[LICENCE]))

    await apply(timeline, file_of(job()), prune=True)

    assert len(await declared(timeline)) == 2


async def test_declarations_of_the_store_will_do(timeline: Timeline) -> None:
    await apply(timeline, file_of(limits=[S3], resources=[LICENCE]))

    await apply(timeline, file_of(job(rate_limits=["s3-put"], resources={"pg-license": 4})))

    assert len(await timeline.store.jobs(JobQuery())) == 1


async def test_unknown_names_are_refused_where_they_stand(timeline: Timeline) -> None:
    await apply(timeline, file_of(job("vacuum"), limits=[S3], resources=[LICENCE]))

    resource = await refusal(timeline, job(resources={"pg-licence": 1}))
    limit = await refusal(timeline, job(rate_limits=["s3put"]))
    upstream = await refusal(timeline, job(after=["vacum"]))

    assert resource.startswith('jobs[0].resources.pg-licence  there is no resource "pg-licence"')
    assert resource.endswith('did you mean "pg-license"?')
    assert limit.startswith('jobs[0].rate_limits[0]  there is no limit "s3put"')
    assert upstream == 'jobs[0].after[0]  there is no job "vacum" — did you mean "vacuum"?'


async def test_what_a_worker_has_offered_may_be_asked_for(timeline: Timeline) -> None:
    await join(timeline, {"fpga": 2_000})

    applied = await apply(timeline, file_of(job(resources={"fpga": 0.5, "cpu": 0})))

    assert applied.warnings == ()


async def test_more_than_any_worker_has_is_warned_about(timeline: Timeline) -> None:
    await join(timeline, {"cpu": 4_000})

    applied = await apply(timeline, file_of(job(resources={"cpu": 64})))

    [warning] = applied.warnings
    assert warning.path == "jobs[0].resources.cpu"
    assert "no worker of pool default has 64 cpu, the largest has 4" in warning.message


async def test_labels_that_no_worker_has_are_warned_about(timeline: Timeline) -> None:
    await join(timeline, {}, site="fra", disk="nvme")
    await join(timeline, {}, site="ams")
    jobs = job("a", needs={"site": "fra"}), job("b", needs={"site": "ams", "disk": "nvme"})

    applied = await apply(timeline, file_of(*jobs))

    [warning] = applied.warnings
    assert warning.path == "jobs[1].needs"
    assert "no worker of pool default is labelled site=ams, disk=nvme: " in warning.message


async def test_a_pool_without_a_worker_is_warned_about_once(timeline: Timeline) -> None:
    [session] = await timeline.store.sessions(alive_only=True)
    jobs = job("a", pool="defualt"), job("b", pool="defualt"), job("c")

    applied = await apply(timeline, file_of(*jobs))
    await timeline.store.end_session(session.id)
    unknown = await apply(timeline, file_of(*jobs))

    [warning] = applied.warnings
    assert (warning.path, warning.line) == ("jobs[0].pool", 10)
    assert warning.message == "pool defualt has no worker now: runs will wait for one"
    assert "default" in warning.hint
    assert unknown.warnings == ()  # nothing is known of workers


async def test_jobs_that_come_after_one_that_goes_are_named(timeline: Timeline) -> None:
    await apply(timeline, file_of(job("first"), job("second", after=["first"])))
    await definitions.apply(
        timeline.engine,
        read_file(json.dumps({"jobs": [job("report", after=["first"])]}), name="others"),
        actor="ann",
    )

    plan = await definitions.plan(timeline.engine, file_of(), prune=True)

    notes = {change.name: change.notes for change in plan.changes}
    message = "jobs that come after it will wait for it in vain: report"
    assert notes == {"first": (message,), "second": ()}


async def test_runs_larger_than_their_pool_takes_are_refused(timeline: Timeline) -> None:
    await apply(timeline, file_of(job(resources={"cpu": 8})))
    strict = replace(timeline.engine, pools=Pools(largest={"default": {"cpu": 4_000}}))

    with pytest.raises(Invalid) as applied:
        await definitions.apply(strict, file_of(job("other", resources={"cpu": 8})), actor="ann")
    stored = await definitions.find_job(strict, "dump")
    with pytest.raises(Conflict) as triggered:
        await runs.trigger(strict, stored, TriggerOptions({}), actor="ann")

    message = "pool default takes runs of at most 4 cpu, not 8"
    assert [problem.message for problem in applied.value.problems] == [message]
    assert triggered.value.message == f"job dump: {message}"
    assert triggered.value.code == "run_too_large"


async def test_the_most_of_a_pool_is_kept_with_it_and_goes_before_settings(
    timeline: Timeline,
) -> None:
    await apply(timeline, file_of(job(resources={"cpu": 8, "memory": "1GiB"})))
    engine = replace(timeline.engine, pools=Pools(largest={"default": {"cpu": 4_000}}))
    stored = await definitions.find_job(engine, "dump")

    await give_pool(engine, "default", None, actor="ann", most={"cpu": 8_000})
    run, _ = await runs.trigger(engine, stored, TriggerOptions({}), actor="ann")
    assert run.job == "dump"

    await give_pool(engine, "default", None, actor="ann", most={"memory": 2**29 * 1_000})
    with pytest.raises(Conflict, match="at most 512MiB memory, not 1GiB"):
        await runs.trigger(replace(engine, pools=Pools()), stored, TriggerOptions({}), actor="ann")


async def test_how_large_a_pool_of_others_is_nobody_is_told(timeline: Timeline) -> None:
    await make_project(timeline.store, "etl")
    strict = replace(timeline.engine, pools=Pools(largest={"gpu": {"cpu": 4_000}}))
    await give_pool(strict, "gpu", ["etl"], actor="ann")

    file = file_of(job(pool="gpu", resources={"cpu": 8}))

    with pytest.raises(Invalid) as refused:
        await definitions.apply(strict, file, actor="ann")

    [problem] = refused.value.problems
    assert problem.message == "dump: pool gpu was given to other projects"
    assert "policy" not in problem.hint


async def test_a_resource_of_workers_that_becomes_shared_changes_the_jobs_of_the_file(
    timeline: Timeline,
) -> None:
    await join(timeline, {"pg-license": 2_000})
    asking = job(resources={"pg-license": 1})
    await apply(timeline, file_of(asking))

    [change] = (await apply(timeline, file_of(asking, resources=[LICENCE]))).changes

    assert change.differences == ("resources.pg-license  of its worker → shared by all",)


async def test_jobs_of_the_store_may_be_followed_but_not_in_a_ring(timeline: Timeline) -> None:
    await apply(timeline, file_of(job("first"), job("second", after=["first"])))

    await apply(timeline, file_of(job("third", after=["second"])))
    ring = await refusal(timeline, job("first", after=["third"]))

    assert ring.startswith("jobs[0].after[0]  these jobs would wait for each other: ")
    assert "first → third → second → first" in ring


async def test_a_job_that_the_same_file_prunes_cannot_be_followed(timeline: Timeline) -> None:
    await apply(timeline, file_of(job("first"), job("second", after=["first"])))

    with pytest.raises(Invalid) as refused:
        await apply(timeline, file_of(job("second", after=["first"])), prune=True)

    assert refused.value.problems[0].message == 'there is no job "first"'


async def test_a_project_has_no_more_jobs_than_its_quota(timeline: Timeline) -> None:
    await timeline.store.save_declarations([Quota("default", jobs=2)], actor="admin")
    await apply(timeline, file_of(job("a"), job("b")))

    await apply(timeline, file_of(job("a", priority=7), job("b")))
    await apply(timeline, file_of(job("a"), job("c")), prune=True)
    with pytest.raises(Conflict) as refused:
        await apply(timeline, file_of(job("d")))

    assert refused.value.code == "quota_exceeded"
    names = [each.name for each in await timeline.store.jobs(JobQuery())]
    assert names == ["a", "c"]


async def test_what_only_workers_offer_is_not_for_work_of_other_systems(timeline: Timeline) -> None:
    await join(timeline, {"lathe": 1000})
    external = {"name": "cut", "type": "external", "timeout": "1h", "resources": {"lathe": 1}}

    assert "lathe is what workers offer: another system does the work" in (
        await refusal(timeline, external)
    )
    await apply(timeline, file_of(external, resources=[{"name": "lathe", "total": 1}]))
