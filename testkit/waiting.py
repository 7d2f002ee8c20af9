"""Waiting for other processes by polling, with a deadline instead of a guess."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

PATIENCE = timedelta(seconds=20)
_LOOK_AGAIN_SECONDS = 0.02


def eventually(claim: Callable[[], T], within: timedelta = PATIENCE, otherwise: str = "") -> T:
    """Return the first true result of `claim`; a false one or an `AssertionError` means: retry."""
    end = boottime() + within.total_seconds()
    while True:
        try:
            answer = claim()
            if answer:
                return answer
            complaint = otherwise or f"still {answer!r} after {within}"
        except AssertionError as error:
            complaint = f"{otherwise or 'not'} within {within}: {error}"
        if boottime() >= end:
            raise AssertionError(complaint)
        threading.Event().wait(_LOOK_AGAIN_SECONDS)


def boottime() -> float:
    """Return seconds of the clock that all processes of a machine share and nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
