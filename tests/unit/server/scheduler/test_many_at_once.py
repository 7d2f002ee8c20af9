"""What is prepared, so that many that are due at one instant start soon after it."""

from __future__ import annotations

from typing import cast

import pytest

from rota.ports.store import Store
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio


async def test_what_the_look_has_read_is_not_read_again_to_dispatch_it(timeline: Timeline) -> None:
    job = await timeline.apply("every 1s")
    await timeline.scheduler.timekeeper.look()

    found = await timeline.engine.specs.find(cast("Store", None), [(job.id, job.version)])

    assert found[job.id, job.version].name == "job"
