"""What is coming, by jobs, carts, runs and workers in a real store."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from rota.domain import gates
from rota.domain.carts.definition import CartRules, Order
from rota.domain.errors import Invalid
from rota.domain.forecast.ahead import RunAhead, Source
from rota.domain.ids import micros
from rota.domain.run import AttemptResult
from rota.domain.states import RunState
from rota.operations import definitions, forecast_inputs, forecasts, pauses
from rota.operations.definitions import find_job
from rota.operations.forecasts import Question, look_ahead, predict_starts, upcoming_jobs
from rota.operations.tenants import Sight, sight_of
from rota.operations.why import likely_start
from rota.ports.work import Outcome
from rota.server.scheduler.releaser import Follower
from testkit.builders import closed_until, reported
from testkit.cart_scenes import CartScene
from testkit.clock import START
from testkit.identity import make_project
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAY = 24 * HOUR


async def runs_ahead(timeline: Timeline, ahead: timedelta, name: str = "job") -> list[RunAhead]:
    found = await forecasts.make_forecast(timeline.engine, ahead)
    return [run for run in found.runs if run.job.name == name]


async def minutes(timeline: Timeline, ahead: timedelta, name: str = "job") -> list[float]:
    """When runs of a job start, in minutes from now."""
    return [run.start_at / 60 for run in await runs_ahead(timeline, ahead, name)]


async def take(timeline: Timeline, length: timedelta) -> None:
    """A worker takes what is queued, and completes it after so long."""
    works = await timeline.start_runs()
    began = micros(timeline.ticker.instant)
    ended = micros(timeline.ticker.advance(length))
    ends = [Outcome(w.run, w.number, AttemptResult.COMPLETED, began, ended) for w in works]
    await timeline.store.finish(timeline.session, reported(*ends))


async def test_a_schedule_is_expanded_with_what_its_job_expects(timeline: Timeline) -> None:
    await timeline.apply("0 * * * *", expect="12m")

    found = await runs_ahead(timeline, DAY)

    assert len(found) == 24
    assert {(run.seconds, run.job.durations.source) for run in found} == {(720.0, Source.EXPECT)}
    assert all(run.wait == 0 for run in found)


async def test_history_beats_what_the_job_expects(timeline: Timeline) -> None:
    await timeline.apply("every 10m", expect="9m")
    await timeline.pass_time(10 * MINUTE)
    await take(timeline, 2 * MINUTE)

    [first, *_] = await runs_ahead(timeline, HOUR)

    assert (first.seconds, first.job.durations.source) == (120.0, Source.HISTORY)


async def test_calendars_spread_and_pauses_count(timeline: Timeline) -> None:
    window = f"{START + HOUR:%H:%M}-{START + 3 * HOUR:%H:%M}"
    calendar = {"name": "closed", "windows": [f"daily {window}"]}
    job = {"steps": [{"run": "true"}], "schedule": "every 30m"}
    await timeline.apply_file(
        {
            "calendars": [calendar],
            "jobs": [
                {"name": "closed", "calendars": ["closed"], **job},
                {"name": "spread", "spread": "10m", **job},
                {"name": "paused", **job},
            ],
        }
    )
    paused = await timeline.job("paused")
    until = START + 65 * MINUTE
    await pauses.pause(timeline.engine, paused, actor="ann", until=until)

    assert await minutes(timeline, 4 * HOUR, "closed") == [30, 180, 210, 240]
    spread = await minutes(timeline, 80 * MINUTE, "spread")
    assert len(spread) == 2
    assert 30 < spread[0] < 40
    assert spread[1] - spread[0] == pytest.approx(30)
    assert await minutes(timeline, 2 * HOUR, "paused") == [90, 120]


async def test_a_run_of_a_paused_job_comes_when_the_pause_ends_by_itself(
    timeline: Timeline,
) -> None:
    for name, until in (("soon", START + 20 * MINUTE), ("never", None)):
        job = await timeline.apply(None, name=name)
        await pauses.pause(timeline.engine, job, actor="ann", until=until)
        await timeline.scene.trigger(job.id)

    assert await minutes(timeline, HOUR, "soon") == [20]
    assert await minutes(timeline, HOUR, "never") == []


async def test_what_comes_to_a_closed_job_comes_when_it_opens(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = closed_until(START + 65 * MINUTE)
    monkeypatch.setattr(gates, "CLOSINGS", (*gates.CLOSINGS, closing))
    await timeline.apply("every 30m", name="due", overlap="queue_all", expect="1m")
    await timeline.apply("every 30m", name="one", overlap="skip", expect="1m")
    asked = await timeline.apply(None, name="asked", expect="1m")
    await timeline.apply(None, name="follower", after=["asked"])
    await timeline.scene.trigger(asked.id)

    assert await minutes(timeline, 95 * MINUTE, "due") == [65, 66, 90]
    assert await minutes(timeline, 95 * MINUTE, "one") == [65, 90]
    assert await minutes(timeline, 95 * MINUTE, "asked") == [65]
    assert await minutes(timeline, 95 * MINUTE, "follower") == [66]


async def test_of_overdue_due_times_one_is_still_ahead(timeline: Timeline) -> None:
    await timeline.apply("every 10m")
    timeline.be_down(55 * MINUTE)

    assert await minutes(timeline, 20 * MINUTE) == [0, 5, 15]


async def test_an_interval_from_completion_counts_on_the_length_of_its_runs(
    timeline: Timeline,
) -> None:
    await timeline.apply("10m", expect="5m", interval_from="completion")
    assert await minutes(timeline, HOUR) == [10, 25, 40, 55]

    await timeline.pass_time(10 * MINUTE)
    await timeline.start_runs()

    assert await minutes(timeline, HOUR) == [0, 15, 30, 45, 60]


async def test_jobs_that_follow_others_come_with_their_end(timeline: Timeline) -> None:
    await timeline.apply("0 * * * *", name="first", expect="10m")
    await timeline.apply(None, name="second", after=["first"], expect="1m")
    await timeline.apply(None, name="third", after=["second"])

    assert await minutes(timeline, 90 * MINUTE, "first") == [60]
    assert await minutes(timeline, 90 * MINUTE, "second") == [70]
    assert await minutes(timeline, 90 * MINUTE, "third") == [71]


async def test_a_follower_is_ahead_in_the_line_in_which_it_will_wait(timeline: Timeline) -> None:
    first = await timeline.apply(None, name="first", expect="10m")
    await timeline.apply(None, name="second", after=["first"])
    await timeline.scene.trigger(first.id)  # by somebody else
    [predicted] = await runs_ahead(timeline, HOUR, "second")

    await take(timeline, MINUTE)
    await Follower(timeline.engine, timeline.shards).run_once()

    [came] = await timeline.store.open_runs(10)
    assert came.job == "second"
    assert came.share == predicted.job.share


async def test_a_due_run_waits_for_the_jobs_that_it_comes_after(timeline: Timeline) -> None:
    await timeline.apply("50 * * * *", name="first", expect="100m")
    await timeline.apply("0 * * * *", name="second", after=["first"])

    # Nothing completes until 150; by then the run of 120 has taken the place of that of 60.
    found = await runs_ahead(timeline, 190 * MINUTE, "second")
    assert [(run.due_at / 60, run.start_at / 60) for run in found] == [(120, 150), (180, 180)]
    assert (found[0].wait / 60, found[0].waits_for) == (30, "after:default/first")


async def test_due_runs_that_wait_for_others_start_as_predicted(timeline: Timeline) -> None:
    first = await timeline.apply("50 * * * *", name="first", expect="15m")
    second = await timeline.apply("*/30 * * * *", name="second", after=["first"], expect="5m")
    lengths: dict[str, timedelta] = {first.id: 15 * MINUTE, second.id: 5 * MINUTE}
    predicted = await minutes(timeline, 175 * MINUTE, "second")

    ends: list[tuple[datetime, Any]] = []
    started: list[float] = []
    for _ in range(35):
        await timeline.pass_time(5 * MINUTE)
        now = timeline.ticker.instant
        await timeline.scene.finish(timeline.session, [work for end, work in ends if end == now])
        await Follower(timeline.engine, timeline.shards).run_once()
        await timeline.scheduler.run_once()
        works = await timeline.start_runs()
        ends += [(now + lengths[work.job_id], work) for work in works]
        started += [(now - START) / MINUTE for work in works if work.job_id == second.id]

    assert predicted == started == [65, 90, 125, 150]


async def test_what_completed_since_the_due_time_before_need_not_do_so_again(
    timeline: Timeline,
) -> None:
    first = await timeline.apply(None, name="first")
    await timeline.apply("0 * * * *", name="second", after=["first"])
    await timeline.scene.trigger(first.id)
    await take(timeline, MINUTE)
    await Follower(timeline.engine, timeline.shards).run_once()

    [soon, never] = await runs_ahead(timeline, 2 * HOUR, "second")

    assert (soon.start_at / 60, soon.wait) == (59, 0)
    assert (never.due_at / 60, never.start_at) == (119, float("inf"))


async def test_of_runs_that_go_on_the_first_to_end_counts(timeline: Timeline) -> None:
    first = await timeline.apply(None, name="first", expect="10m")
    await timeline.apply("37 * * * *", name="second", after=["first"])
    for length in (30 * MINUTE, 5 * MINUTE):  # the older is slow: taken to last as long again
        await timeline.scene.trigger(first.id)
        await timeline.start_runs()
        timeline.ticker.advance(length)

    assert await minutes(timeline, HOUR, "second") == [5]


@pytest.mark.parametrize("within", [None, "10m"])
async def test_a_due_run_that_waits_for_a_job_which_is_gone_does_not_start(
    timeline: Timeline, within: str | None
) -> None:
    first = await timeline.apply("50 * * * *", name="first")
    after = {"jobs": ["first"], "within": within} if within else ["first"]
    await timeline.apply("0 * * * *", name="second", after=after)
    assert await minutes(timeline, 70 * MINUTE, "second") == [60]

    await definitions.delete(timeline.engine, first, actor="ann")
    found = await look_ahead(timeline.engine, Question("default", length=150 * MINUTE))

    [entry] = found.jobs
    assert (entry.starts, entry.unplaced) == ((2, 2) if within else (1, 1))  # MISSED, or replaced
    assert entry.waits_for == "after:default/first"
    assert not found.saturations


async def test_a_run_that_waits_for_another_job_starts_when_that_completes(
    timeline: Timeline,
) -> None:
    await timeline.apply("50 * * * *", name="first", expect="100m")
    await timeline.apply("0 * * * *", name="second", after=["first"], overlap="queue_all")
    await timeline.pass_time(50 * MINUTE)
    await timeline.start_runs()
    await timeline.pass_time(10 * MINUTE)

    [blocked] = await timeline.runs("second")
    [ahead] = [run for run in await runs_ahead(timeline, 100 * MINUTE, "second") if run.id]

    assert blocked.state is RunState.BLOCKED
    assert (ahead.id, ahead.start_at / 60) == (blocked.id, 90)


async def test_waiting_and_running_runs_take_their_turn_first(timeline: Timeline) -> None:
    await timeline.store.end_session(timeline.session)
    session = await timeline.scene.worker("small", slots=1)
    job = await timeline.apply(None, expect="10m")
    await timeline.scene.trigger(job.id, 3)
    await timeline.scene.start(session, await timeline.scene.claim(session, 1))
    timeline.ticker.advance(4 * MINUTE)

    assert await minutes(timeline, 15 * MINUTE) == [-4, 6, float("inf")]
    assert await minutes(timeline, HOUR) == [-4, 6, 16]


@pytest.mark.parametrize(
    ("fields", "left"), [({}, 4), ({"timeout": "6m"}, 2), ({"deadline": "5m"}, 1)]
)
async def test_a_run_that_has_outlived_what_was_expected_takes_as_long_again_if_it_may(
    timeline: Timeline, fields: dict[str, Any], left: float
) -> None:
    await timeline.store.end_session(timeline.session)
    session = await timeline.scene.worker("small", slots=1)
    job = await timeline.apply(None, expect="1m", **fields)
    await timeline.scene.trigger(job.id, 2)
    await timeline.scene.start(session, await timeline.scene.claim(session, 1))
    timeline.ticker.advance(4 * MINUTE)

    assert await minutes(timeline, HOUR) == [-4, left]


@pytest.mark.parametrize(
    ("fields", "source"), [({}, Source.GUESS), ({"expect": "1m"}, Source.EXPECT)]
)
async def test_the_length_of_runs_that_are_there_is_known_from_where_it_is(
    timeline: Timeline, fields: dict[str, Any], source: Source
) -> None:
    job = await timeline.apply(None, **fields)
    await timeline.scene.trigger(job.id, 2)
    [first] = await timeline.scene.claim(timeline.session, 1)
    await timeline.scene.start(timeline.session, [first])
    timeline.ticker.advance(10 * MINUTE)

    found = await look_ahead(timeline.engine, Question("default", length=HOUR))

    [waiting] = found.jobs
    assert waiting.first.job.durations.source is source
    # What nobody knows the length of is not running longer than usual.
    assert [run.id for run in found.slow] == ([] if source is Source.GUESS else [first.run])


async def test_who_waits_for_a_shared_key_longest_is_ahead_of_who_comes_with_priority(
    timeline: Timeline,
) -> None:
    job = {"steps": [{"run": "true"}], "resources": {"licence": 1}, "expect": "10m"}
    await timeline.apply_file(
        {
            "resources": [{"name": "licence", "total": 1}],
            "jobs": [
                {"name": "humble", "priority": 4, **job},
                {"name": "urgent", "priority": 9, "schedule": "every 4m", **job},
            ],
        }
    )
    await timeline.scene.trigger((await timeline.job("humble")).id, 2)
    await timeline.start_runs()
    timeline.ticker.advance(2 * MINUTE)  # with the two to come more than five steps of priority

    assert await minutes(timeline, 3 * MINUTE, "urgent") == [float("inf")]
    assert (await minutes(timeline, 20 * MINUTE, "urgent"))[0] == 18
    assert await minutes(timeline, 20 * MINUTE, "humble") == [-2, 8]


async def test_who_has_waited_for_a_key_is_ahead_of_younger_runs(timeline: Timeline) -> None:
    job = {"steps": [{"run": "true"}], "expect": "10m"}
    await timeline.apply_file(
        {
            "resources": [{"name": "licence", "total": 1}],
            "jobs": [
                {"name": "rare", "resources": {"licence": 1}, **job},
                {"name": "often", **job},
            ],
        }
    )
    await timeline.scene.trigger((await timeline.job("rare")).id, 3)
    await timeline.scene.trigger((await timeline.job("often")).id, 3_000)

    assert await minutes(timeline, HOUR, "rare") == [0, 10, 20]


async def test_a_draining_worker_takes_nothing(timeline: Timeline) -> None:
    await timeline.apply("every 10m")
    [session] = await timeline.store.sessions(alive_only=True)
    await timeline.store.drain_worker(session.worker, actor="ann")

    assert await minutes(timeline, 15 * MINUTE) == [float("inf")]


async def test_the_items_of_a_cart_are_ahead_wave_by_wave(timeline: Timeline) -> None:
    job = await timeline.apply(None, name="upgrade", expect="10m")
    await CartScene(timeline.scene).submit(job.id, CartRules(Order.SERIAL), items=3)

    assert await minutes(timeline, HOUR, "upgrade") == [0, 10, 20]


async def test_a_shared_key_makes_runs_wait_and_is_named(timeline: Timeline) -> None:
    job = {"steps": [{"run": "true"}], "schedule": "every 10m", "expect": "3m"}
    licensed: dict[str, Any] = {"resources": {"licence": 1}, **job}
    await timeline.apply_file(
        {
            "resources": [{"name": "licence", "total": 1}],
            "jobs": [{"name": "one", **licensed}, {"name": "two", **licensed}],
        }
    )

    found = await look_ahead(
        timeline.engine, Question("default", length=15 * MINUTE, measure="licence")
    )

    [short] = found.saturations
    assert (short.what, short.waiting, short.longest_wait) == ("resource:default/licence", 1, 180)
    assert (found.load.measure.capacity, found.load.peak.peak) == (1, 1)


async def test_tokens_that_are_gone_have_to_come_again(timeline: Timeline) -> None:
    limit = {"name": "mail", "tokens": 1, "per": "10m", "burst": 1}
    job = {"name": "job", "steps": [{"run": "true"}], "rate_limits": [{"name": "mail"}]}
    await timeline.apply_file({"limits": [limit], "jobs": [job]})
    await timeline.scene.trigger((await timeline.job()).id, 3)
    await take(timeline, 4 * MINUTE)

    assert await minutes(timeline, HOUR) == [6, 16]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_others_wait_for_is_kept_by_runs_without_a_worker_that_goes_on(
    timeline: Timeline, is_lost: bool
) -> None:
    job = await timeline.apply(
        None,
        expect="10m",
        delivery="at_most_once",
        inputs={"host": {"type": "string", "default": "a"}},
        exclusive_by=["host"],
    )
    first, second = await timeline.scene.trigger(job.id, 2)
    await timeline.store.end_session(timeline.session)
    session = await timeline.scene.worker("leaving")
    await timeline.scene.start(session, await timeline.scene.claim(session))
    if is_lost:
        await timeline.scene.vanish(session)
    else:
        await timeline.store.drain_worker("leaving", actor="ann")
    await timeline.scene.worker("other")

    [ahead] = await runs_ahead(timeline, HOUR)

    assert await timeline.scene.state(first) is (
        RunState.UNKNOWN if is_lost else RunState.PROCESSING
    )
    assert (ahead.id, ahead.start_at) == (second, float("inf") if is_lost else 600)


async def test_a_foreign_project_takes_room_and_is_not_told(timeline: Timeline) -> None:
    await timeline.apply("every 10m")

    found = await look_ahead(timeline.engine, Question("other", length=HOUR))

    assert (found.starts, list(found.jobs), found.load.peak.peak) == (0, [], 1)


async def test_jobs_are_told_together_or_run_by_run(timeline: Timeline) -> None:
    await timeline.apply("every 10m", name="often")
    await timeline.apply("every 40m", name="seldom")

    all_jobs = await look_ahead(timeline.engine, Question("default", length=HOUR))
    one = await look_ahead(timeline.engine, Question("default", length=HOUR, job="often"))

    assert [(it.first.job.name, it.starts) for it in all_jobs.jobs] == [("often", 5), ("seldom", 1)]
    assert not all_jobs.runs
    assert [run.start_at for run in one.runs] == [600.0 * n for n in range(1, 6)]


@pytest.mark.parametrize(
    "fields",
    [
        {"end": START - HOUR},
        {"end": START + 8 * DAY},
        {"begin": START + 9 * DAY},
        {"begin": START + 2 * DAY, "length": 6 * DAY},
        {"length": 8 * DAY},
        {"measure": "x"},
    ],
)
async def test_what_cannot_be_told_is_refused(timeline: Timeline, fields: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        await look_ahead(timeline.engine, Question("default", **fields))


async def test_predictions_are_compared_with_what_came(timeline: Timeline) -> None:
    await timeline.apply("every 10m")
    assert await predict_starts(timeline.engine, 15 * MINUTE, DAY) == 1

    await timeline.pass_time(10 * MINUTE + timedelta(seconds=1))
    await timeline.end_runs()

    outlook = await look_ahead(timeline.engine, Question("default"))
    assert outlook.accuracy is not None
    assert (outlook.accuracy.starts, outlook.accuracy.near) == (1, 1)
    assert outlook.accuracy.usual_error == timedelta(seconds=1)


class TestMembers:
    """Whoever has a role in some projects only is told by what competes with their runs."""

    async def two_pools(self, timeline: Timeline, *, is_given: bool = True) -> Sight:
        """Two projects with jobs and a worker in pools of their own; what members of one see."""
        for name, pool in (("shop", "gpu"), ("web", "big")):
            await make_project(timeline.store, name)
            if is_given:
                await timeline.store.give_pool(pool, [name], actor="root")
            await timeline.scene.worker(f"worker-{name}", slots=1, pool=pool)
            jobs = [
                {"name": each, "schedule": "every 10m", "expect": "8m", "pool": pool}
                for each in ("first", "second")
            ]
            steps = {"steps": [{"run": "true"}]}
            await timeline.apply_file({"project": name, "jobs": [job | steps for job in jobs]})
        return await sight_of(timeline.engine, ["shop"])

    async def test_a_forecast_of_its_pools_alone_is_the_same_and_reads_nothing_of_others(
        self, timeline: Timeline
    ) -> None:
        sight = await self.two_pools(timeline)
        length = 2 * HOUR

        member = await look_ahead(timeline.engine, Question("shop", length=length, sight=sight))
        admin = await look_ahead(timeline.engine, Question("shop", length=length))

        told, expected = (
            sorted((it.first.start_at, it.starts, it.longest_wait) for it in each.jobs)
            for each in (member, admin)  # both come at once: which goes first is told by their ids
        )
        assert told == expected
        assert len(told) == 2
        assert [each.what for each in member.saturations] == [
            each.what for each in admin.saturations
        ]
        assert {run.job.project for run in member.forecast.runs} == {"shop"}
        assert {run.job.project for run in admin.forecast.runs} == {"shop", "web"}
        assert (member.load.measure.capacity, admin.load.measure.capacity) == (1, 1002)

    async def test_a_pool_that_is_for_all_makes_it_one_of_all(self, timeline: Timeline) -> None:
        sight = await self.two_pools(timeline, is_given=False)

        member = await look_ahead(timeline.engine, Question("shop", length=HOUR, sight=sight))
        admin = await look_ahead(timeline.engine, Question("shop", length=HOUR))

        assert member.forecast.runs == admin.forecast.runs
        assert {run.job.project for run in member.forecast.runs} == {"shop", "web"}

    async def test_what_comes_soon_and_when_a_run_starts_are_told_by_it_too(
        self, timeline: Timeline
    ) -> None:
        sight = await self.two_pools(timeline)
        engine = timeline.engine
        scene = replace(timeline.scene, home="shop")
        job = await find_job(engine, "first", project="shop")
        run = await scene.show((await scene.trigger(job.id))[0])

        forecast, soon = await upcoming_jobs(engine, "shop", HOUR, is_member=True)
        starts_at = await likely_start(engine, run, sight)

        assert {each.name for each in soon} == {"first", "second"}
        assert {each.job.project for each in forecast.runs} == {"shop"}
        assert starts_at == START
        assert len(engine.ahead.groups) == 1

    async def test_many_jobs_of_others_do_not_cut_it_short(
        self, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sight = await self.two_pools(timeline)
        monkeypatch.setattr(forecast_inputs, "MOST_JOBS", 3)

        member = await look_ahead(timeline.engine, Question("shop", length=HOUR, sight=sight))
        admin = await look_ahead(timeline.engine, Question("shop", length=HOUR))

        assert (member.forecast.is_cut, admin.forecast.is_cut) == (False, True)
