"""Whatever the queue does, every run completes, and none runs twice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from testkit.unreliable_queue import UnreliableQueue
from tests.conformance.queue.crew import at_work

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("seed", range(5))
async def test_all_runs_complete_once(tmp_path: Path, seed: int) -> None:
    queue = UnreliableQueue(seed)

    async with at_work(tmp_path, [queue, queue], timedelta(milliseconds=50)) as crew:
        await crew.submit(batches=50)
        await crew.until_completed(200)

    assert min(queue.lost, queue.doubled, queue.delayed) > 10
