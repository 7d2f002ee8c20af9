"""What the page about time says of outages, holds and intervals is done in a time of its own."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota.domain.quantities import parse_duration
from rota.operations import pauses
from tests.unit.docs.pages import ROOT, rows
from tests.unit.server.scheduler.timeline import Timeline, open_timeline

pytestmark = pytest.mark.anyio

PAGE = ROOT / "docs" / "design" / "time.md"
DAY = datetime(2026, 5, 4, tzinfo=UTC)
HALF_PAST_NINE = DAY + timedelta(hours=9, minutes=30)
HOUR = timedelta(hours=1)


def clock(text: str) -> datetime:
    """`11:30` on that day."""
    hours, minutes = text.split(":")
    return DAY + timedelta(hours=int(hours), minutes=int(minutes))


async def do(timeline: Timeline, words: str) -> None:
    """A verb of `rota job`, with what the table says after it."""
    job, actor = await timeline.job(), "test"
    match words.split():
        case ["pause", "--until", time]:
            await pauses.pause(timeline.engine, job, actor=actor, until=clock(time))
        case ["pause", "--for", length]:
            until = timeline.ticker.instant + parse_duration(length)
            await pauses.pause(timeline.engine, job, actor=actor, until=until)
        case ["skip"]:
            await pauses.skip_next(timeline.engine, job, actor=actor)
        case ["pause" | "resume" | "enable" | "disable" as verb]:
            await getattr(pauses, verb)(timeline.engine, job, actor=actor)
        case _:
            raise AssertionError(f"the table has an unknown verb: {words}")


async def live_through(timeline: Timeline, told: str) -> None:
    """From 09:30 to 13:00, as a row of the table says."""
    times = re.findall(r"until (\d\d:\d\d)| at (\d\d:\d\d)", told)
    then = clock(next(time for pair in times for time in pair if time)) if times else None
    first, *second = re.findall(r"`([^`]+)`", told) or ["stop"]
    if first == "stop":
        assert then is not None
        timeline.be_down(then - timeline.ticker.instant)
    else:
        await do(timeline, first)
    for verb in second:
        assert then is not None
        await timeline.pass_time(then - timeline.ticker.instant)
        await do(timeline, verb)
    await timeline.pass_time(DAY + 13 * HOUR - timeline.ticker.instant)


def answer_words(state: str, cause: str) -> str:
    return f"{state}, `{cause}`" if state in ("SKIPPED", "MISSED") else "runs"


@pytest.mark.parametrize(
    ("told", "answers"), [(row[0], row[1:]) for row in rows(PAGE, "Holding a job")]
)
async def test_holds_do_what_the_table_says(tmp_path: Path, told: str, answers: list[str]) -> None:
    async with open_timeline(tmp_path, HALF_PAST_NINE) as timeline:
        await timeline.apply("0 * * * *", overlap="allow")

        await live_through(timeline, told)

        ledger = [
            answer_words(entry.state, entry.cause)
            for entry in await timeline.entries()
            for _ in range(entry.count)
        ]
        assert ledger == answers


@pytest.mark.parametrize(("told", "due"), rows(PAGE, "Intervals"))
async def test_intervals_count_from_where_the_table_says(
    tmp_path: Path, told: str, due: str
) -> None:
    async with open_timeline(tmp_path, DAY + 9 * HOUR) as timeline:
        await timeline.apply("every 1h", interval_from=told.split("`")[1], overlap="allow")
        await timeline.pass_time(HOUR)
        works = await timeline.start_runs()
        await timeline.pass_time(timedelta(minutes=25))
        await timeline.scene.finish(timeline.session, works)
        await timeline.pass_time(timedelta(minutes=1))

        next_at = (await timeline.job()).next_at

        assert f"{next_at:%H:%M}" == due


@pytest.mark.parametrize(("told", "ran", "missed"), rows(PAGE, "Misfire"))
async def test_outages_do_what_the_table_says(
    tmp_path: Path, told: str, ran: str, missed: str
) -> None:
    policy = dict(re.findall(r"(\w+): ([^,}]+)", told))
    misfire = {key: int(value) if value.isdigit() else value for key, value in policy.items()}
    async with open_timeline(tmp_path, clock("01:30")) as timeline:
        await timeline.apply(re.findall(r"`([^`]+)`", told)[1:] or "0 * * * *", misfire=misfire)
        timeline.be_down(clock("04:10") - clock("01:30"))
        await timeline.pass_time(timedelta(0))
        while await timeline.end_runs():
            await timeline.pass_time(timedelta(0))

        ledger = await timeline.entries()

        completed = [f"{entry.first:%H:%M}" for entry in ledger if entry.state == "COMPLETED"]
        assert completed == ran.split()
        lost = [entry for entry in ledger if entry.state != "COMPLETED"]
        assert {entry.state for entry in lost} <= {"MISSED"}
        assert sum(entry.count for entry in lost) == int(missed)
