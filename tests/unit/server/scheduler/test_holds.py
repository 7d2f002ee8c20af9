"""Due times that a person kept from running."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.errors import Conflict, Invalid
from rota.operations import pauses
from testkit.clock import START
from tests.unit.server.scheduler.timeline import Answer, Timeline

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def pause(timeline: Timeline, until: timedelta | None = None) -> None:
    end = None if until is None else START + until
    await pauses.pause(timeline.engine, await timeline.job(), actor="test", until=end)


async def resume(timeline: Timeline) -> None:
    await pauses.resume(timeline.engine, await timeline.job(), actor="test")


async def disable(timeline: Timeline) -> None:
    await pauses.disable(timeline.engine, await timeline.job(), actor="test")


async def enable(timeline: Timeline) -> None:
    await pauses.enable(timeline.engine, await timeline.job(), actor="test")


async def skip(timeline: Timeline) -> None:
    await pauses.skip_next(timeline.engine, await timeline.job(), actor="test")


async def test_pause_disable_and_downtime_are_told_apart(timeline: Timeline) -> None:
    await timeline.apply("every 1h", misfire={"policy": "none"})
    await pause(timeline)
    await timeline.pass_time(2 * HOUR + MINUTE)
    await resume(timeline)
    await disable(timeline)
    await timeline.pass_time(3 * HOUR)
    await enable(timeline)
    timeline.be_down(4 * HOUR)
    await timeline.scheduler.run_once()

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 2 * HOUR, 2, "SKIPPED", "paused"),
        Answer(3 * HOUR, 5 * HOUR, 3, "SKIPPED", "disabled"),
        Answer(6 * HOUR, 9 * HOUR, 4, "MISSED", "downtime"),
    ]


async def test_a_pause_inside_a_disable_keeps_its_own_stretch(timeline: Timeline) -> None:
    await timeline.apply("every 1h")
    await pause(timeline)
    await disable(timeline)
    await timeline.pass_time(HOUR + MINUTE)
    await resume(timeline)
    await timeline.pass_time(HOUR)
    await enable(timeline)

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 1 * HOUR, 1, "SKIPPED", "paused"),
        Answer(2 * HOUR, 2 * HOUR, 1, "SKIPPED", "disabled"),
    ]


async def test_a_disable_is_the_cause_until_the_pause_inside_it_begins(timeline: Timeline) -> None:
    await timeline.apply("every 1h")
    await disable(timeline)
    await timeline.pass_time(2 * HOUR)
    await pause(timeline)
    await timeline.pass_time(HOUR)
    await resume(timeline)
    await timeline.pass_time(HOUR)
    await enable(timeline)

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 2 * HOUR, 2, "SKIPPED", "disabled"),
        Answer(3 * HOUR, 3 * HOUR, 1, "SKIPPED", "paused"),
        Answer(4 * HOUR, 4 * HOUR, 1, "SKIPPED", "disabled"),
    ]


async def test_a_pause_is_not_caught_up(timeline: Timeline) -> None:
    await timeline.apply("every 1h", misfire={"policy": "all"}, overlap="allow")
    await pause(timeline)
    await timeline.pass_time(3 * HOUR + MINUTE)
    await resume(timeline)

    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [4 * HOUR]


async def test_a_pause_ends_by_itself(timeline: Timeline) -> None:
    await timeline.apply("every 1h", overlap="allow")
    await pause(timeline, until=2 * HOUR + MINUTE)

    await timeline.pass_time(4 * HOUR)

    assert await timeline.due_times() == [3 * HOUR, 4 * HOUR]
    assert (await timeline.ledger())[0] == Answer(HOUR, 2 * HOUR, 2, "SKIPPED", "paused")
    assert (await timeline.job()).paused_until is None


async def test_a_job_paused_until_its_due_time_runs_then(timeline: Timeline) -> None:
    await timeline.apply("every 1h", overlap="allow")
    await pause(timeline, until=2 * HOUR)

    await timeline.pass_time(2 * HOUR)

    [run] = await timeline.runs()
    assert (run.due_at, run.created_at) == (START + 2 * HOUR, START + 2 * HOUR)


async def test_a_pause_that_ended_while_nobody_was_there_ends_in_the_ledger_where_it_did(
    timeline: Timeline,
) -> None:
    await timeline.apply("every 1h", misfire={"policy": "none"})
    await pause(timeline, until=2 * HOUR + MINUTE)
    timeline.be_down(4 * HOUR + MINUTE)

    await timeline.scheduler.run_once()

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 2 * HOUR, 2, "SKIPPED", "paused"),
        Answer(3 * HOUR, 4 * HOUR, 2, "MISSED", "downtime"),
    ]


async def test_a_pause_that_is_ended_early_holds_nothing_more(timeline: Timeline) -> None:
    await timeline.apply("every 1h", overlap="allow")
    await pause(timeline, until=5 * HOUR)
    await timeline.pass_time(HOUR + MINUTE)

    await resume(timeline)
    await timeline.pass_time(HOUR)

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 1 * HOUR, 1, "SKIPPED", "paused"),
        Answer(2 * HOUR, 2 * HOUR, 1, "QUEUED", ""),
    ]


async def test_pausing_again_moves_the_end(timeline: Timeline) -> None:
    await timeline.apply("every 1h", overlap="allow")
    await pause(timeline, until=HOUR)
    await pause(timeline, until=3 * HOUR)

    await timeline.pass_time(3 * HOUR)

    assert await timeline.due_times() == [3 * HOUR]


async def test_a_pause_cannot_end_in_the_past(timeline: Timeline) -> None:
    await timeline.apply("every 1h")

    with pytest.raises(Invalid, match="has passed"):
        await pause(timeline, until=-SECOND)


async def test_a_skipped_due_time_is_in_the_ledger_and_the_next_one_runs(
    timeline: Timeline,
) -> None:
    await timeline.apply("every 1h")
    await skip(timeline)

    await timeline.pass_time(2 * HOUR)

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 1 * HOUR, 1, "SKIPPED", "skip next"),
        Answer(2 * HOUR, 2 * HOUR, 1, "QUEUED", ""),
    ]


async def test_skipping_twice_leaves_out_two(timeline: Timeline) -> None:
    await timeline.apply("every 1h")
    await skip(timeline)
    await skip(timeline)

    await timeline.pass_time(3 * HOUR)

    assert await timeline.due_times() == [3 * HOUR]


async def test_a_job_without_a_due_time_has_none_to_skip(timeline: Timeline) -> None:
    await timeline.apply(None)

    with pytest.raises(Conflict) as conflict:
        await skip(timeline)

    assert conflict.value.code == "nothing_due"


async def test_a_skip_that_comes_too_late_takes_the_one_after(timeline: Timeline) -> None:
    await timeline.apply("every 1h")
    read_before = await timeline.job()
    await timeline.pass_time(HOUR)

    await pauses.skip_next(timeline.engine, read_before, actor="test")

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 1 * HOUR, 1, "QUEUED", ""),
        Answer(2 * HOUR, 2 * HOUR, 1, "SKIPPED", "skip next"),
    ]


async def test_a_pause_that_comes_too_late_does_not_take_back_what_fired(
    timeline: Timeline,
) -> None:
    await timeline.apply("every 1h")
    read_before = await timeline.job()
    await timeline.pass_time(HOUR)
    await pauses.pause(timeline.engine, read_before, actor="test")
    await timeline.pass_time(HOUR)

    await resume(timeline)

    assert [(answer.first, answer.cause) for answer in await timeline.ledger()] == [
        (1 * HOUR, ""),
        (2 * HOUR, "paused"),
    ]


async def test_the_reason_of_a_held_run_says_when_the_pause_ends(timeline: Timeline) -> None:
    await timeline.apply("every 1h")
    await timeline.pass_time(HOUR)

    await pause(timeline, until=2 * HOUR)
    await pause(timeline, until=3 * HOUR)

    [run] = await timeline.runs()
    assert [reason.eligible_at for reason in run.reasons] == [START + 3 * HOUR]
