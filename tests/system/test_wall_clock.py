"""A node's wall clock never decides: wrong, or stepped, it makes no difference in what fires."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from rota.sdk.client import Client
from testkit.processes import RotaUp
from testkit.waiting import eventually
from testkit.wall_clock import WallClock
from tests.system.conftest import Up
from tests.system.faketime import wall_clock
from tests.system.jobs import apply, job

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
_CLOCKS = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))"


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return wall_clock(tmp_path / "offset")


def define(rota: RotaUp) -> None:
    rules = {"overlap": "allow", "misfire": {"policy": "all"}}
    apply(rota.client, job("ticking", "true", schedule="* * * * * *", **rules))


def due_times(rota: RotaUp) -> list[datetime]:
    """Of all runs, in order; a due time that fired twice would be there twice."""
    runs = rota.client.each(Client.list_runs(job="ticking", limit=1000))
    return sorted(run.due_at for run in runs)


def fired(rota: RotaUp, count: int) -> Callable[[], bool]:
    return lambda: len(due_times(rota)) >= count


def wall_of(rota: RotaUp) -> datetime:
    """What the server takes for the time of day."""
    with urllib.request.urlopen(f"{rota.client.server.url}/livez") as answer:
        return parsedate_to_datetime(answer.headers["Date"])


def wall_is_off_by(rota: RotaUp, offset: timedelta) -> bool:
    """By the whole second, which the server looks at now and then."""
    before = _true_wall()
    wall = wall_of(rota) - offset
    return before - 3 * SECOND < wall < _true_wall() + SECOND


def _true_wall() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the wall clock is what this test is about


def every_second(times: list[datetime]) -> list[datetime]:
    return [times[0] + n * SECOND for n in range(len(times))]


def test_only_the_wall_clock_is_faked(clock: WallClock) -> None:
    clock.set(-HOUR)
    command = [sys.executable, "-c", _CLOCKS]

    true = subprocess.check_output(command, text=True)
    faked = subprocess.check_output(command, text=True, env=clock.environ)

    (true_wall, true_boot), (wall, boot) = (map(float, text.split()) for text in (true, faked))
    assert wall - true_wall == pytest.approx(-3600, abs=30)
    assert boot - true_boot == pytest.approx(0, abs=30)


@pytest.mark.parametrize("step", [-5 * SECOND, -HOUR, HOUR], ids=str)
def test_a_step_of_the_wall_clock_repeats_and_skips_nothing(
    up: Up, clock: WallClock, step: timedelta
) -> None:
    rota = up(environ=clock.environ)
    define(rota)
    eventually(fired(rota, 2))

    clock.set(step)
    eventually(lambda: wall_is_off_by(rota, step))
    eventually(fired(rota, len(due_times(rota)) + 7))

    times = due_times(rota)
    assert times == every_second(times)


def test_a_server_that_starts_with_a_clock_an_hour_behind_goes_on_where_it_was(
    up: Up, clock: WallClock
) -> None:
    rota = up(environ=clock.environ)
    define(rota)
    eventually(fired(rota, 3))
    rota.stop()
    clock.set(-HOUR)

    again = up(environ=clock.environ)
    before = due_times(again)
    eventually(fired(again, len(before) + 3))

    times = due_times(again)
    assert times == every_second(times)
    eventually(lambda: wall_is_off_by(again, -HOUR))


@pytest.mark.parametrize("offset", [-HOUR, HOUR], ids=str)
def test_a_worker_whose_clock_is_an_hour_off_tells_the_right_times(
    up: Up, tmp_path: Path, offset: timedelta
) -> None:
    """Starts and ends are told in the store's time, whatever the worker's clock shows."""
    clock = wall_clock(tmp_path / "offset")
    rota = up(environ=clock.environ)
    clock.set(offset)
    eventually(lambda: wall_is_off_by(rota, offset))

    define(rota)
    eventually(fired(rota, 3))

    runs = [run for run in rota.client.each(Client.list_runs(job="ticking")) if run.is_final]
    assert runs
    assert all(run.lateness_seconds is not None for run in runs)
    assert all(0 <= (run.lateness_seconds or 0) < 30 for run in runs)
