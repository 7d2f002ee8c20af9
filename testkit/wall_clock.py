"""Wall clock that a test can set, for one process and its children (libfaketime)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

_LIBRARIES = ("usr/lib/*/faketime/libfaketimeMT.so.1", "usr/lib/faketime/libfaketimeMT.so.1")


def faketime_library() -> Path | None:
    """Return the library of Debian's package `faketime`; None: it is not installed."""
    return next((path for pattern in _LIBRARIES for path in Path("/").glob(pattern)), None)


class WallClock:
    """Offset of the wall clock, for processes that are started with `environ`.

    Other clocks stay true: a wrong wall clock is what machines get, by NTP or by hand.
    """

    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self._library = library
        self.set(timedelta(0))

    @property
    def environ(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
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
