from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from rota.domain.forecast.ahead import Setting
from rota.domain.forecast.forecast import Forecast
from rota.operations.engine import KeptForecast
from testkit.clock import START

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
MOMENT = timedelta(milliseconds=1)


@dataclass
class Work:
    """Makes forecasts, each in so many seconds of a clock of its own."""

    seconds: float = 1.0
    now: float = 0.0
    begun: int = 0
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def make(self, ahead: timedelta) -> Forecast:
        self.begun += 1
        await self.may_end.wait()
        self.now += self.seconds
        return Forecast(START, START + ahead, (), Setting(()), {})


@pytest.fixture
def work() -> Work:
    work = Work()
    work.may_end.set()
    return work


@pytest.mark.parametrize(("seconds", "kept"), [(0.1, 2.0), (1.0, 20.0), (30.0, 60.0)])
async def test_a_forecast_is_kept_for_longer_the_more_it_cost(
    work: Work, seconds: float, kept: float
) -> None:
    forecasts = KeptForecast(lambda: work.now)
    work.seconds = seconds
    first = await forecasts.get(HOUR, work.make)

    work.now += kept * 0.99
    second = await forecasts.get(HOUR, work.make)
    work.now += kept * 0.02
    third = await forecasts.get(HOUR, work.make)

    assert second is first
    assert third is not first


async def test_a_forecast_that_looks_not_far_enough_is_made_anew(work: Work) -> None:
    forecasts = KeptForecast(lambda: work.now)

    spans = [(await forecasts.get(ahead, work.make)).seconds for ahead in (HOUR, 2 * HOUR, HOUR)]

    assert spans == [3_600.0, 7_200.0, 7_200.0]
    assert work.begun == 2


async def test_who_is_in_a_hurry_goes_without_and_begins_nothing_again(work: Work) -> None:
    forecasts = KeptForecast(lambda: work.now)
    work.may_end.clear()

    hurried = [await forecasts.get_within(MOMENT, HOUR, work.make) for _ in range(3)]

    assert (hurried, work.begun) == ([None, None, None], 1)


async def test_who_is_in_a_hurry_gets_what_another_waited_for(work: Work) -> None:
    forecasts = KeptForecast(lambda: work.now)
    work.may_end.clear()
    await forecasts.get_within(MOMENT, HOUR, work.make)
    work.may_end.set()

    made = await forecasts.get(HOUR, work.make)

    assert await forecasts.get_within(MOMENT, HOUR, work.make) is made
