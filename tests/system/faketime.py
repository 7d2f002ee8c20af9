"""Where a wall clock that a test can set comes from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testkit.wall_clock import WallClock, faketime_library


def wall_clock(file: Path) -> WallClock:
    """Without libfaketime the test is skipped, but not in CI."""
    library = faketime_library()
    if library is None and "CI" not in os.environ:
        pytest.skip("needs the Debian package faketime")
    assert library is not None, "install the Debian package faketime"
    return WallClock(file, library)
