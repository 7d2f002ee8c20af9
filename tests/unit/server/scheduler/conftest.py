from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.server.scheduler.timeline import Timeline, open_timeline


@pytest.fixture
async def timeline(tmp_path: Path) -> AsyncIterator[Timeline]:
    async with open_timeline(tmp_path) as opened:
        yield opened
