"""A gateway for every test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.server.gateway.served import Served, serving_gateway


@pytest.fixture
async def served(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    async with serving_gateway(tmp_path) as served:
        yield served
