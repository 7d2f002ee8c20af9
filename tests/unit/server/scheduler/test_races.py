"""Changes that meet a schedule which moves while they are prepared."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Conflict
from rota.domain.job import Job
from rota.operations import definitions, firing, pauses
from rota.ports.records import NewJob
from testkit.clock import START
from tests.unit.server.scheduler.timeline import Answer, Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def chained(timeline: Timeline, **fields: Any) -> Job:
    """A job whose next due time follows from the end of its run, which is under way."""
    return await timeline.apply("every 1h", interval_from="completion", **fields)


async def seen_before_its_run_ended(timeline: Timeline) -> Job:
    """A paused job as somebody saw it, who did not see that its run has ended since."""
    job = await chained(timeline)
    await timeline.pass_time(HOUR)
    works = await timeline.start_runs()
    await pauses.pause(timeline.engine, job, actor="test")
    seen = await timeline.job()
    await timeline.scene.finish(timeline.session, works)
    await timeline.pass_time(MINUTE)
    return seen


async def test_a_resume_that_saw_the_run_does_not_end_the_chain(timeline: Timeline) -> None:
    seen = await seen_before_its_run_ended(timeline)

    await pauses.resume(timeline.engine, seen, actor="test")
    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR, 2 * HOUR]


async def test_a_disable_that_saw_the_run_does_not_end_the_chain(timeline: Timeline) -> None:
    seen = await seen_before_its_run_ended(timeline)

    await pauses.disable(timeline.engine, seen, actor="test")
    await pauses.enable(timeline.engine, await timeline.job(), actor="test")
    await pauses.resume(timeline.engine, await timeline.job(), actor="test")
    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR, 2 * HOUR]


async def test_a_pause_that_is_prolonged_as_it_ends_goes_on(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await timeline.apply("every 1h")
    await pauses.pause(timeline.engine, job, actor="test", until=START + MINUTE)
    timeline.be_down(MINUTE)
    ended_pauses = timeline.store.ended_pauses

    async def prolonged_at_once(limit: int) -> list[Job]:
        [ended] = await ended_pauses(limit)
        await pauses.pause(timeline.engine, ended, actor="test", until=START + HOUR)
        return [ended]

    monkeypatch.setattr(timeline.store, "ended_pauses", prolonged_at_once)

    await pauses.end_pauses(timeline.engine, 10)

    assert (await timeline.job()).paused


@pytest.fixture
def between(timeline: Timeline, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Coroutines that are awaited between the preparation of a save and the save."""
    waiting: list[Any] = []
    save_jobs = timeline.store.save_jobs

    async def save_later(jobs: Sequence[NewJob], **fields: Any) -> None:
        while waiting:
            await waiting.pop(0)
        return await save_jobs(jobs, **fields)

    monkeypatch.setattr(timeline.store, "save_jobs", save_later)
    return waiting


@pytest.mark.parametrize("enabled", [True, False])
async def test_an_apply_that_saw_the_run_does_not_lose_what_follows_it(
    timeline: Timeline, between: list[Any], enabled: bool
) -> None:
    await chained(timeline)
    await timeline.pass_time(HOUR)
    works = await timeline.start_runs()
    await chained(timeline, enabled=not enabled)
    between += [
        timeline.scene.finish(timeline.session, works),
        firing.rearm(timeline.engine, 10),
    ]

    job = await chained(timeline, enabled=enabled)
    await timeline.pass_time(2 * HOUR)

    assert job.cursor is not None
    assert await timeline.due_times() == ([HOUR, 2 * HOUR] if enabled else [HOUR])


async def test_an_apply_that_did_not_see_a_pause_does_not_end_it(
    timeline: Timeline, between: list[Any]
) -> None:
    job = await timeline.apply("0 * * * *")
    between.append(pauses.pause(timeline.engine, job, actor="test"))

    await timeline.apply("30 * * * *")
    await timeline.pass_time(2 * HOUR)

    assert await timeline.due_times() == []


async def test_an_edit_that_meets_a_fire_answers_no_due_time_twice(
    timeline: Timeline, between: list[Any]
) -> None:
    await timeline.apply("0 * * * *", misfire={"policy": "none"}, overlap="allow")
    await timeline.pass_time(59 * MINUTE)
    between.append(timeline.pass_time(11 * MINUTE))

    await timeline.apply("*/20 * * * *", misfire={"policy": "none"}, overlap="allow")
    await timeline.pass_time(10 * MINUTE)

    assert await timeline.ledger() == [
        Answer(HOUR, HOUR, 1, "QUEUED", ""),
        Answer(80 * MINUTE, 80 * MINUTE, 1, "QUEUED", ""),
    ]


async def test_a_delete_that_meets_a_fire_answers_no_due_time_twice(
    timeline: Timeline, between: list[Any]
) -> None:
    job = await timeline.apply("0 * * * *")
    await timeline.pass_time(59 * MINUTE)
    between.append(timeline.pass_time(2 * MINUTE))

    await definitions.delete(timeline.engine, job, actor="test")

    [entry] = await timeline.store.ledger(job.id, START, START + 2 * HOUR, 10)
    assert (entry.first, entry.count, entry.cause) == (START + HOUR, 1, "")


async def test_a_job_that_somebody_else_creates_meanwhile_is_not_overwritten(
    timeline: Timeline, between: list[Any]
) -> None:
    between.append(timeline.apply("30 * * * *"))

    with pytest.raises(Conflict) as conflict:
        await timeline.apply("0 * * * *")

    assert conflict.value.code == "job_changed"
    assert (await timeline.job()).document["schedule"] == "30 * * * *"


@pytest.mark.parametrize("change", ["apply", "delete"])
async def test_a_schedule_that_never_stands_still_is_given_up(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    job = await timeline.apply("0 * * * *")
    tries: list[object] = []

    async def save_too_late(*args: object, **fields: object) -> None:
        tries.append(args)
        raise Conflict("it fired meanwhile", code="schedule_moved")

    monkeypatch.setattr(timeline.store, "save_jobs", save_too_late)

    changed = (
        timeline.apply("30 * * * *")
        if change == "apply"
        else definitions.delete(timeline.engine, job, actor="test")
    )
    with pytest.raises(Conflict):
        await changed

    assert 1 < len(tries) < 20
