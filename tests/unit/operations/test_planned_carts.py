"""What applying a file does to its carts: said before, done all or none, and never started."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.domain.errors import Conflict, Invalid
from rota.domain.jobfile import JobFile, read_file
from rota.domain.jobfile.export import Change
from rota.operations import definitions
from rota.operations.definitions import Plan
from rota.ports.carts import CartQuery
from rota.ports.records import JobQuery
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

UPGRADE = {
    "name": "upgrade",
    "steps": [{"run": "true"}],
    "inputs": {"version": {"type": "integer", "default": 16}},
}


def cart(name: str = "rollout", **fields: Any) -> dict[str, Any]:
    return {"name": name, "job": "upgrade", "items": [{"key": "db-1"}, {"key": "db-2"}], **fields}


def file_of(*carts: dict[str, Any], jobs: Any = (UPGRADE,), **fields: Any) -> JobFile:
    document = {"jobs": list(jobs), "carts": list(carts), **fields}
    return read_file(json.dumps(document, indent=1), name="fleet")


async def apply(timeline: Timeline, file: JobFile, **fields: Any) -> Plan:
    return await definitions.apply(timeline.engine, file, actor="ann", **fields)


async def plan(timeline: Timeline, file: JobFile, **fields: Any) -> Plan:
    return await definitions.plan(timeline.engine, file, **fields)


async def names(timeline: Timeline) -> list[str]:
    return [each.name for each in await timeline.store.templates("default")]


async def problems(timeline: Timeline, file: JobFile) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as refused:
        await apply(timeline, file)
    return [(problem.path, problem.message) for problem in refused.value.problems]


async def test_a_plan_tells_what_a_cart_would_do_and_saves_nothing(timeline: Timeline) -> None:
    wanted = cart(order="groups", group_size=[1, 5, "10%"], failures={"allow": "2%"})

    [planned] = (await plan(timeline, file_of(wanted))).carts

    assert planned.change is Change.NEW
    assert planned.words == "2 items in waves of 1, 5, 10%, … · up to 2% may fail · on demand"
    assert await names(timeline) == []


async def test_a_schedule_is_told_with_its_next_time(timeline: Timeline) -> None:
    wanted = cart(schedule="0 2 * * *", timezone="Europe/Berlin")

    [planned] = (await plan(timeline, file_of(wanted))).carts

    assert planned.words.endswith("none may fail · every day at 02:00, Europe/Berlin")
    assert planned.next_at is not None
    assert planned.next_at.hour == 2


async def test_applying_saves_templates_and_starts_none(timeline: Timeline) -> None:
    applied = await apply(timeline, file_of(cart(), cart("second")))

    assert [each.change for each in applied.carts] == [Change.NEW] * 2
    assert await names(timeline) == ["rollout", "second"]
    assert await timeline.store.carts(CartQuery()) == []


async def test_applying_it_again_changes_nothing(timeline: Timeline) -> None:
    await apply(timeline, file_of(cart()))

    again = await apply(timeline, file_of(cart()))

    assert {each.change for each in again.changes} == {Change.UNCHANGED}
    assert {each.change for each in again.carts} == {Change.UNCHANGED}
    [template] = await timeline.store.templates("default")
    assert template.version == 1


async def test_differences_are_told_line_by_line(timeline: Timeline) -> None:
    await apply(timeline, file_of(cart()))

    [planned] = (await plan(timeline, file_of(cart(max_parallel=3)))).carts

    assert (planned.change, planned.differences) == (Change.CHANGED, ("max_parallel  (none) → 3",))


async def test_very_many_differences_are_cut(timeline: Timeline) -> None:
    await apply(timeline, file_of(cart(items=[{"key": f"a-{n}"} for n in range(30)])))

    wanted = cart(items=[{"key": f"b-{n}"} for n in range(30)])
    [planned] = (await plan(timeline, file_of(wanted))).carts

    assert len(planned.differences) == 21
    assert planned.differences[-1] == "and 10 more"


async def test_pruning_removes_the_carts_that_the_file_dropped(timeline: Timeline) -> None:
    await apply(timeline, file_of(cart(), cart("dropped")))
    await apply(timeline, file_of(cart("other"), jobs=(), set="elsewhere"))

    kept = await apply(timeline, file_of(cart()))
    pruned = await apply(timeline, file_of(cart()), prune=True)

    assert [each.name for each in kept.carts] == ["rollout"]
    assert [(each.name, each.change) for each in pruned.carts][1:] == [("dropped", Change.REMOVED)]
    assert await names(timeline) == ["other", "rollout"]


async def test_a_plan_is_void_once_a_cart_has_changed(timeline: Timeline) -> None:
    await apply(timeline, file_of(cart()))
    looked_at = await plan(timeline, file_of(cart(max_parallel=3)))
    await apply(timeline, file_of(cart(max_parallel=2)))

    with pytest.raises(Conflict) as refused:
        await apply(timeline, file_of(cart(max_parallel=3)), if_match=looked_at.etag)

    assert refused.value.code == "etag_mismatch"


async def test_jobs_of_the_store_will_do(timeline: Timeline) -> None:
    await apply(timeline, file_of())

    await apply(timeline, file_of(cart(), jobs=()))

    assert await names(timeline) == ["rollout"]


async def test_unknown_names_are_refused_where_they_stand_and_nothing_is_saved(
    timeline: Timeline,
) -> None:
    wanted = cart(job="upgrad", rollback="undo", calendars=["nights"])

    told = await problems(timeline, file_of(wanted))

    assert set(told) == {
        ("carts[0].job", 'there is no job "upgrad"'),
        ("carts[0].rollback", 'there is no job "undo"'),
        ("carts[0].calendars[0]", 'there is no calendar "nights"'),
    }
    assert await names(timeline) == []
    assert await timeline.store.jobs(JobQuery()) == []


async def test_a_calendar_of_the_same_file_is_known(timeline: Timeline) -> None:
    nights = {"name": "nights", "windows": ["daily 22:00-06:00"]}

    await apply(timeline, file_of(cart(calendars=["nights"]), calendars=[nights]))

    assert await names(timeline) == ["rollout"]


async def test_a_job_that_is_pruned_by_the_same_file_is_unknown(timeline: Timeline) -> None:
    await apply(timeline, file_of())

    with pytest.raises(Invalid) as refused:
        await apply(timeline, file_of(cart(), jobs=()), prune=True)

    assert [problem.path for problem in refused.value.problems] == ["carts[0].job"]


async def test_inputs_are_compared_with_jobs_of_the_store(timeline: Timeline) -> None:
    await apply(timeline, file_of())
    wanted = cart(items=[{"key": "db-1", "with": {"version": "new"}}])

    [(path, message)] = await problems(timeline, file_of(wanted, jobs=()))

    assert path == "carts[0].items[0].with.version"
    assert "whole number" in message


async def test_a_file_of_items_is_not_the_servers_to_read(timeline: Timeline) -> None:
    wanted = cart(items=None, items_from="hosts.csv")

    with pytest.raises(Invalid) as refused:
        await apply(timeline, file_of(wanted))

    [problem] = refused.value.problems
    assert problem.path == "carts[0].items_from"
    assert "the CLI reads the file and sends its items" in problem.hint


async def test_calendars_that_leave_a_cart_no_time_are_refused(timeline: Timeline) -> None:
    halves = [{"name": "first", "windows": ["Mon-Wed"]}, {"name": "rest", "windows": ["Thu-Sun"]}]
    wanted = cart(calendars=["first", "rest"])

    [(path, message)] = await problems(timeline, file_of(wanted, calendars=halves))

    assert path == "carts[0].calendars"
    assert "leave it no time" in message
