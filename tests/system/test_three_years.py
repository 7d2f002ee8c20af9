"""Three years of 200 jobs in a minute: every due time is answered, each exactly once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rota.operations import pauses
from rota.ports.records import LedgerEntry
from tests.system.zoned_days import daily, every, hourly, minutely, weekly
from tests.unit.server.scheduler.timeline import Timeline, open_timeline

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]

BEGIN = datetime(2027, 1, 1, tzinfo=UTC)
END = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MONTH = (datetime(2028, 2, 1, tzinfo=UTC), datetime(2028, 2, 29, 23, 59, tzinfo=UTC))
ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "UTC",
)
MISFIRES: tuple[dict[str, Any], ...] = (
    {"policy": "all"},
    {"policy": "all", "max": 2},
    {"policy": "all", "within": "1h"},
    {"policy": "last"},
    {"policy": "first", "within": "2d"},
    {"policy": "none"},
)


@dataclass(frozen=True)
class Sample:
    """A job, and its due times by the reference."""

    name: str
    document: dict[str, Any]
    due_times: tuple[datetime, ...]


def samples() -> Iterator[Sample]:
    random = Random(3)
    for number in range(200):
        zone = ZONES[number % len(ZONES)]
        at = time(random.randrange(24), random.choice((0, 0, 15, 30, 59)))
        if number < 3:
            month = {"starts": MONTH[0].isoformat(), "ends": MONTH[1].isoformat()}
            due, schedule, more = minutely(BEGIN, *MONTH), "* * * * *", month
        elif number < 7:
            due, schedule, more = hourly(zone, BEGIN, END), "0 * * * *", {}
        elif number < 16:
            due, schedule, more = every(7 * HOUR, BEGIN, END), "every 7h", {}
        elif number < 40:
            weekday = number % 7
            due = weekly(zone, weekday, at, BEGIN, END)
            schedule, more = f"{at.minute} {at.hour} * * {(weekday + 1) % 7}", {}
        else:
            due, schedule, more = daily(zone, at, BEGIN, END), f"{at.minute} {at.hour} * * *", {}
        rules = {"timezone": zone, "misfire": MISFIRES[number % len(MISFIRES)], "overlap": "allow"}
        document = {"name": f"job-{number}", "schedule": schedule, **rules, **more}
        yield Sample(f"job-{number}", document, tuple(due))


async def live(timeline: Timeline, jobs: list[Sample], random: Random) -> None:
    """Two of three steps are ordinary hours; between them are outages, pauses and skips."""
    while (left := END - timeline.ticker.instant) > timedelta(0):
        match random.randrange(15):
            case 0:
                until = timeline.ticker.instant + random.randrange(1, 200) * HOUR
                job = await timeline.job(random.choice(jobs).name)
                await pauses.pause(timeline.engine, job, actor="test", until=until)
            case 1:
                job = await timeline.job(random.choice(jobs).name)
                if job.next_at is not None and job.next_at <= END:
                    await pauses.skip_next(timeline.engine, job, actor="test")
            case _:
                pass
        if random.randrange(3):
            await timeline.pass_time(min(random.randrange(1, 4) * HOUR, left))
        else:
            timeline.be_down(min(random.randrange(1, 200) * HOUR, left))
            await timeline.scheduler.run_once()


def check(due_times: tuple[datetime, ...], ledger: list[LedgerEntry]) -> Counter[str]:
    """Each due time is answered once; returns how many, by answer."""
    answers: Counter[str] = Counter()
    answered: list[datetime] = []
    for entry in ledger:
        first, end = bisect_left(due_times, entry.first), bisect_right(due_times, entry.last)
        assert due_times[first] == entry.first
        assert due_times[end - 1] == entry.last
        assert end - first == entry.count
        answered += due_times[first:end]
        answers[entry.cause or entry.state] += entry.count
    assert tuple(answered) == due_times
    return answers


async def test_every_due_time_of_three_years_has_one_answer(tmp_path: Path) -> None:
    jobs = list(samples())
    async with open_timeline(tmp_path, BEGIN) as timeline:
        await timeline.apply_all([job.document for job in jobs])
        await live(timeline, jobs, Random(8))
        for job in jobs:  # what a pause still holds is answered when it ends
            await pauses.resume(timeline.engine, await timeline.job(job.name), actor="test")
        await timeline.scheduler.run_once()
        answers = Counter[str]()
        for job in jobs:
            answers += check(job.due_times, await timeline.entries(job.name))

    assert answers.keys() == {"QUEUED", "downtime", "paused", "skip next"}
    assert answers.total() == sum(len(job.due_times) for job in jobs)
