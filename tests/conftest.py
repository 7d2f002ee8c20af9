"""Settings shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

SYSTEM_TESTS = Path(__file__).parent / "system"

# A red build is about the change, so the examples are the same in every run;
# `--hypothesis-profile=explore` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(SYSTEM_TESTS):
            item.add_marker(pytest.mark.system)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
