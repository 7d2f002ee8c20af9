"""What the misfire policy `all` promises is kept, whatever overlap policy and workers do."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.run import Run
from rota.domain.spec import Overlap
from rota.domain.states import RunState, is_final
from testkit.clock import START
from tests.unit.server.scheduler.timeline import Timeline, open_timeline

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Outage:
    """Hours without a scheduler, and how attempts end after them."""

    hours: int
    within: int
    most: int
    overlap: Overlap
    ends: list[str]  # of one attempt after another; all others complete

    @property
    def chosen(self) -> list[datetime]:
        """An hourly job is back a minute past the hour."""
        newest = range(max(1, self.hours - self.within + 1), self.hours + 1)[-self.most :]
        return [START + hour * HOUR for hour in newest]


outages = st.builds(
    Outage,
    hours=st.integers(4, 8),
    within=st.integers(3, 9),
    most=st.integers(3, 6),
    overlap=st.sampled_from(Overlap),
    ends=st.lists(st.sampled_from(["COMPLETED", "FAILED", "LOST"]), max_size=6),
)


async def live_through(outage: Outage, timeline: Timeline) -> list[Run]:
    """The runs of the job, once those that were caught up are over."""
    misfire = {"policy": "all", "within": f"{outage.within}h", "max": outage.most}
    limits: dict[str, Any] = {
        "max_concurrency": 1,
        "max_losses": 9,
        "retry": {"attempts": 9, "delay": "1s"},
    }
    await timeline.apply("0 * * * *", misfire=misfire, overlap=outage.overlap, **limits)
    timeline.be_down(outage.hours * HOUR + MINUTE)
    ends = iter(outage.ends)
    for _ in range(_ROUNDS):
        await timeline.pass_time(50 * MINUTE)  # live due times come in between
        for work in await timeline.start_runs():
            end = next(ends, "COMPLETED")
            if end == "LOST":
                await timeline.store.lose(timeline.session, [work.fence])
            else:
                await timeline.scene.finish(timeline.session, [work], end)
        runs = [run for run in await timeline.runs() if run.due_at in outage.chosen]
        if runs and all(is_final(run.state) for run in runs):
            return runs
    raise AssertionError("what was caught up does not end")


async def outcome(outage: Outage) -> list[Run]:
    with tempfile.TemporaryDirectory() as folder:
        async with open_timeline(Path(folder)) as timeline:
            return await live_through(outage, timeline)


@settings(max_examples=settings().max_examples // 3)
@given(outages)
def test_every_chosen_due_time_runs_once_and_in_order(outage: Outage) -> None:
    runs = asyncio.run(outcome(outage))

    assert [run.due_at for run in runs] == outage.chosen
    assert {run.state for run in runs} == {RunState.COMPLETED}
    starts = [run.first_started_at for run in runs if run.first_started_at]
    assert len(starts) == len(runs)
    assert outage.overlap is Overlap.ALLOW or starts == sorted(starts)
