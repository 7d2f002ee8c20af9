"""The kernel's alarm: never early, once, and with nothing left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.clock import SystemClock

pytestmark = pytest.mark.anyio
SOON = 0.02
MUCH_LATER = 3600.0


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


async def test_alarm_rings_once_and_never_early() -> None:
    clock, rung, is_rung = SystemClock(), [], asyncio.Event()

    def ring() -> None:
        rung.append(clock.monotonic())
        is_rung.set()

    with clock.alarm(ring) as alarm:
        due = clock.monotonic() + SOON
        alarm.set(SOON)
        await asyncio.wait_for(is_rung.wait(), 20)
        is_rung.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(is_rung.wait(), 3 * SOON)

    assert len(rung) == 1
    assert rung[0] >= due


@pytest.mark.parametrize("seconds", [0.0, -1.0], ids=["now", "before"])
async def test_alarm_for_what_is_due_already_rings_at_once(seconds: float) -> None:
    is_rung = asyncio.Event()

    with SystemClock().alarm(is_rung.set) as alarm:
        alarm.set(seconds)
        await asyncio.wait_for(is_rung.wait(), 20)


async def test_a_later_setting_counts() -> None:
    is_rung = asyncio.Event()

    with SystemClock().alarm(is_rung.set) as alarm:
        alarm.set(SOON)
        alarm.set(MUCH_LATER)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(is_rung.wait(), 3 * SOON)
        alarm.set(SOON)
        await asyncio.wait_for(is_rung.wait(), 20)


async def test_alarm_that_is_left_rings_no_more_and_leaves_no_descriptor() -> None:
    is_rung, before = asyncio.Event(), descriptors()

    with SystemClock().alarm(is_rung.set) as alarm:
        alarm.set(SOON)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(is_rung.wait(), 3 * SOON)

    assert descriptors() == before
