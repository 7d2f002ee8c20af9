"""Jobs of types that plug-ins bring, against what workers have offered."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Invalid, NotFound, Problem
from rota.domain.jobfile import read_file
from rota.operations import definitions, workers
from rota.operations.definitions import Plan
from rota.operations.job_types import job_type, job_types
from rota.operations.projects import give_pool
from rota.operations.tenants import EVERYTHING, sight_of
from rota.ports.records import Session
from rota.ports.work import JobTypeNote, Offer
from testkit.builders import hello
from testkit.identity import make_project
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"queue": {"enum": ["OPS"]}}, "required": ["queue"]}


async def join(
    timeline: Timeline, *names: str, schema: str = json.dumps(SCHEMA), reason: str = "", **of: Any
) -> Session:
    """A worker comes that offers these types, as a dispatcher takes it in."""
    offers = tuple(Offer("type", name, reason) for name in names)
    notes = tuple(JobTypeNote(name, 1, schema) for name in names)
    new = hello(of.pop("worker", "w-1"), offers=offers, job_types=notes, **of)
    session, _ = await workers.register(timeline.engine, new, timedelta(seconds=30))
    return session


async def apply(timeline: Timeline, kind: str = "ticket", **fields: Any) -> Plan:
    job = {"name": "open", "type": kind, "parameters": {"queue": "OPS"}, **fields}
    options = {"has_new_types": fields.pop("has_new_types", False)}
    job.pop("has_new_types", None)
    file = read_file(json.dumps({"jobs": [job]}, indent=1), name="jobs")
    return await definitions.apply(timeline.engine, file, actor="ann", **options)


async def refusal(timeline: Timeline, kind: str = "ticket", **fields: Any) -> Problem:
    with pytest.raises(Invalid) as refused:
        await apply(timeline, kind, **fields)
    [problem] = refused.value.problems
    return problem


async def test_a_type_that_nobody_ever_offered_is_refused(timeline: Timeline) -> None:
    problem = await refusal(timeline)

    assert problem.message == 'open: no worker has ever offered jobs of type "ticket"'
    assert (problem.line, "executors names its plug-in" in problem.hint) == (5, True)


async def test_a_typing_error_is_told_with_the_type_that_was_meant(timeline: Timeline) -> None:
    await join(timeline, "ticket")

    problem = await refusal(timeline, "tikcet")

    assert problem.hint.startswith('did you mean "ticket"?')


async def test_a_type_that_a_worker_was_to_have_is_told_with_what_is_wrong(
    timeline: Timeline,
) -> None:
    await join(timeline, "ticket", reason="no installed package has it")

    problem = await refusal(timeline)
    found = await job_type(timeline.engine, EVERYTHING, "ticket")

    assert problem.hint == "worker w-1 was to have it: no installed package has it"
    assert (found.workers, found.lacking) == ((), {"w-1": "no installed package has it"})
    assert found.offered_at is None


async def test_types_of_other_tenants_are_not_told(timeline: Timeline) -> None:
    await make_project(timeline.store, "other")
    await give_pool(timeline.engine, "theirs", ["other"], actor="ann")
    await join(timeline, "ticket", pool="theirs")
    await join(timeline, "form", pool="theirs", worker="w-2", reason="no licence")

    problem = await refusal(timeline, "tikcet")
    seen = await job_types(timeline.engine, await sight_of(timeline.engine, ["default"]))

    assert "ticket" not in problem.hint
    assert "ticket" not in [each.name for each in seen]
    assert "form" not in [each.name for each in seen]
    assert "form" in [each.name for each in await job_types(timeline.engine, EVERYTHING)]
    assert "ticket" in [each.name for each in await job_types(timeline.engine, EVERYTHING)]


async def test_parameters_are_compared_with_what_the_type_wants(timeline: Timeline) -> None:
    await join(timeline, "ticket")

    problem = await refusal(timeline, parameters={"queue": "DEV"})
    missing = await refusal(timeline, parameters={})
    applied = await apply(timeline)

    assert problem.message == 'open: queue must be OPS, not "DEV"'
    assert (problem.line, problem.path) == (7, "jobs[0].parameters.queue")
    assert missing.message == 'open: parameters has no "queue"'
    assert [change.name for change in applied.changes] == ["open"]


async def test_a_worker_that_failed_to_load_it_has_not_offered_it(timeline: Timeline) -> None:
    await join(timeline, "ticket", reason="it cannot be loaded")

    problem = await refusal(timeline)

    assert "has ever offered" in problem.message


async def test_once_offered_a_type_stays_known_and_its_runs_wait(timeline: Timeline) -> None:
    session = await join(timeline, "ticket", pool="away")
    await timeline.store.end_session(session.id)
    await join(timeline, worker="w-2")

    applied = await apply(timeline)

    assert [warning.message for warning in applied.warnings] == [
        "no worker of pool default offers executor for jobs of type ticket: runs will wait for one"
    ]


async def test_a_file_of_the_start_may_have_types_of_the_worker_that_starts(
    timeline: Timeline,
) -> None:
    applied = await apply(timeline, has_new_types=True)

    assert "no worker has ever offered" in applied.warnings[0].message


@pytest.mark.parametrize("schema", ["{", '{"type": "array"}', '"x"'])
async def test_a_schema_that_cannot_be_used_is_not_kept(timeline: Timeline, schema: str) -> None:
    await join(timeline, "ticket", schema=schema)

    found = await job_type(timeline.engine, EVERYTHING, "ticket")

    assert (found.schema, found.workers) == ({}, ("w-1",))
    await apply(timeline, parameters={"whatever": 1})


@pytest.mark.parametrize("name", ["shell", "external", "Ticket", "a/b"])
async def test_a_worker_cannot_tell_of_names_that_no_plugin_can_have(
    timeline: Timeline, name: str
) -> None:
    await join(timeline, name)

    assert await timeline.store.job_types() == []


async def test_types_are_listed_with_who_has_them(timeline: Timeline) -> None:
    await join(timeline, "ticket")
    await join(timeline, "ticket", worker="w-2", reason="no licence")

    found = {each.name: each for each in await job_types(timeline.engine, EVERYTHING)}

    assert (found["shell"].is_built_in, found["shell"].schema) == (True, None)
    assert (found["ticket"].workers, found["ticket"].lacking) == (("w-1",), {"w-2": "no licence"})
    with pytest.raises(NotFound) as refused:
        await job_type(timeline.engine, EVERYTHING, "tikcet")
    assert refused.value.hint == 'did you mean "ticket"?'
