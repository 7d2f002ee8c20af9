"""A wall clock that a test can set, for one process and its children (libfaketime)."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

_LIBRARIES = ("usr/lib/*/faketime/libfaketimeMT.so.1", "usr/lib/faketime/libfaketimeMT.so.1")


def library() -> Path:
    """Where Debian's package `faketime` put it. Without it the test is skipped, but not in CI."""
    found = [path for pattern in _LIBRARIES for path in Path("/").glob(pattern)]
    if not found and "CI" not in os.environ:
        pytest.skip("needs the Debian package faketime")
    assert found, "install the Debian package faketime"
    return found[0]


class WallClock:
    """How far the wall clock is off, for who is started with `environ`.

    Other clocks stay true: a wrong wall clock is what machines get, by NTP or by hand.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(timedelta(0))

    @property
    def environ(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset: timedelta) -> None:
        seconds = offset.total_seconds()
        # Written aside and moved: a half-written file would be a third time.
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}s\n")
        new.replace(self._file)
