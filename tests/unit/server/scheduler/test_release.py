from __future__ import annotations

from datetime import timedelta

import pytest

from rota.operations.why import why
from testkit.clock import START
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def test_a_run_that_its_spread_holds_tells_due_time_and_release_apart(
    timeline: Timeline,
) -> None:
    await timeline.apply("every 1h", spread="50m")

    await timeline.pass_time(HOUR)
    [run] = await timeline.runs()

    assert run.eligible_at is not None
    assert run.eligible_at > run.due_at == START + HOUR
    [reason] = (await why(timeline.engine, run)).reasons
    assert reason.message == (
        f"it is due at {run.due_at:%Y-%m-%d %H:%M:%S} UTC, and its spread or jitter releases it"
        f" at {run.eligible_at:%Y-%m-%d %H:%M:%S} UTC"
    )
