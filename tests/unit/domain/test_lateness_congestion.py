from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.lateness import Congestion, is_stuck
from testkit.clock import START

HOUR = timedelta(hours=1)


def congestion(
    *,
    waiting: int = 1,
    is_skipping: bool = False,
    age: timedelta = timedelta(0),
    expected: timedelta | None = None,
) -> Congestion:
    seconds = None if expected is None else expected.total_seconds()
    return Congestion(waiting, is_skipping, START - age, seconds)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (congestion(waiting=100), False),
        (congestion(waiting=101), True),
        (congestion(age=HOUR), False),
        (congestion(age=HOUR * 1.1), True),
        (congestion(age=9 * HOUR, expected=HOUR), False),
        (congestion(age=11 * HOUR, expected=HOUR), True),
        (congestion(age=2 * HOUR, expected=timedelta(seconds=1)), True),
        (congestion(waiting=0, age=100 * HOUR), False),
        (congestion(waiting=0, is_skipping=True, age=2 * HOUR), True),
    ],
)
def test_a_job_is_stuck_when_too_many_wait_or_for_too_long(
    seen: Congestion, expected: bool
) -> None:
    assert is_stuck(seen, START) is expected
