"""What if: the time ahead of a real store, without and with a change."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.errors import Conflict, Invalid, NotFound
from rota.operations.simulations import Change, Comparison, simulate_change
from testkit.builders import hello
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def compare(timeline: Timeline, change: Change, ahead: timedelta = HOUR) -> Comparison:
    return await simulate_change(timeline.engine, "default", change, ahead)


async def test_more_workers_shorten_waits(timeline: Timeline) -> None:
    await timeline.store.register(hello("small", pool="small", slots=1), HOUR)
    busy = {"expect": "10m", "overlap": "allow", "start_within": "1s", "pool": "small"}
    await timeline.apply("*/5 * * * *", name="a", **busy)

    found = await compare(timeline, Change(add_workers={"small": 2}))

    assert found.after.workers == found.before.workers + 2
    assert found.before.started < found.after.started
    assert found.before.jobs["a"].late > found.after.jobs["a"].late


async def test_what_is_too_late_to_start_takes_nothing_from_others(timeline: Timeline) -> None:
    await timeline.store.register(hello("small", pool="small", slots=1), HOUR)
    busy = {"expect": "10m", "overlap": "allow", "start_within": "1m", "pool": "small"}
    await timeline.apply("*/5 * * * *", name="a", late="drop", **busy)

    found = (await compare(timeline, Change())).before

    result = found.jobs["a"]
    assert result.dropped == result.late > 3
    assert found.started + result.dropped == result.waits.runs
    assert result.waits.longest <= 60


async def test_a_moved_job_comes_at_its_new_times(timeline: Timeline) -> None:
    await timeline.apply("0 3 1 1 *", name="yearly", expect="1s")

    found = await compare(timeline, Change(moves={"yearly": "*/10 * * * *"}))

    assert "yearly" not in found.before.jobs
    assert found.after.jobs["yearly"].waits.runs == 5


async def test_without_a_job_its_runs_do_not_come(timeline: Timeline) -> None:
    await timeline.apply("*/10 * * * *", name="a")
    await timeline.apply("*/10 * * * *", name="b")

    found = await compare(timeline, Change(without=["a"]))

    assert (set(found.before.jobs), set(found.after.jobs)) == ({"a", "b"}, {"b"})


async def test_nothing_is_changed(timeline: Timeline) -> None:
    job = await timeline.apply("*/10 * * * *", name="a")

    await compare(timeline, Change({"default": 1}, {"a": "@daily"}))

    assert await timeline.job("a") == job
    assert len(await timeline.store.sessions(alive_only=True)) == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Change(without=["nobody"]), NotFound),
        (Change(moves={"a": "61 * * * *"}), Invalid),
        (Change(add_workers={"gpu": 1}), Conflict),
    ],
)
async def test_a_change_that_cannot_be_is_refused(
    timeline: Timeline, change: Change, error: type[Exception]
) -> None:
    await timeline.apply("*/10 * * * *", name="a")

    with pytest.raises(error):
        await compare(timeline, change)


async def test_it_looks_seven_days_ahead_at_most(timeline: Timeline) -> None:
    with pytest.raises(Invalid):
        await compare(timeline, Change(), timedelta(days=8))
