from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.forecast.forecast import Outcome
from rota.ports.records import Ownership
from rota.server.scheduler.watches import StartPredictor, StartPredictorConfig
from testkit.clock import START, FakeClock
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def predictor(timeline: Timeline) -> StartPredictor:
    clock = FakeClock(timeline.ticker)
    return StartPredictor(timeline.engine, clock, timeline.shards, StartPredictorConfig())


async def started(timeline: Timeline) -> list[Outcome]:
    return await timeline.store.predicted_starts(START, 100)


async def test_what_was_thought_of_a_due_time_is_held_against_its_start(timeline: Timeline) -> None:
    await timeline.apply("every 20m")

    assert await predictor(timeline).run_once() == 3
    await timeline.pass_time(20 * MINUTE)
    await timeline.end_runs()

    due = START + 20 * MINUTE
    assert await started(timeline) == [Outcome(START, due, due)]


async def test_old_predictions_are_forgotten(timeline: Timeline) -> None:
    await timeline.apply("every 20m")
    await predictor(timeline).run_once()
    await timeline.pass_time(20 * MINUTE)
    await timeline.end_runs()

    timeline.be_down(3 * DAY)
    await predictor(timeline).run_once()

    assert await started(timeline) == []


async def test_one_server_predicts_for_all(timeline: Timeline) -> None:
    await timeline.apply("every 20m")
    held = timeline.shards.ownership()
    timeline.shards.lose(Ownership(held.server, held.epochs), list(held.epochs))

    assert await predictor(timeline).run_once() == 0
