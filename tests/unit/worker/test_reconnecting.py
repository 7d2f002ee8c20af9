"""A worker without a server tries ever slower, within its lease, and does not fill the log."""

from __future__ import annotations

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from rota.worker.session import AT_ONCE, LONGEST_DELAY, Reconnecting
from testkit.clock import FakeClock, FakeTicker

FIRST = timedelta(milliseconds=500)
LEASE = timedelta(seconds=30)


@pytest.fixture
def ticker() -> FakeTicker:
    return FakeTicker()


@pytest.fixture
def reconnecting(ticker: FakeTicker) -> Reconnecting:
    return Reconnecting(FakeClock(ticker), FIRST)


def test_delays_grow_to_two_seconds(reconnecting: Reconnecting) -> None:
    delays = [reconnecting.failed("away", LEASE) for _ in range(2_000)]

    assert FIRST / 2 <= delays[0] <= FIRST
    assert all(LONGEST_DELAY / 2 <= delay <= LONGEST_DELAY for delay in delays[2:])
    assert len(set(delays)) > 1_000


def test_short_lease_is_not_slept_away(reconnecting: Reconnecting) -> None:
    lease = timedelta(seconds=1)

    assert all(reconnecting.failed("away", lease) <= lease / 6 for _ in range(10))


def test_first_delay_is_short_again_after_a_connection(reconnecting: Reconnecting) -> None:
    for _ in range(5):
        reconnecting.failed("away", LEASE)

    reconnecting.succeeded()

    assert reconnecting.failed("away", LEASE) <= FIRST


def test_each_reason_is_told_once_a_minute(ticker: FakeTicker, reconnecting: Reconnecting) -> None:
    with capture_logs() as lines:
        for second in range(121):
            reconnecting.failed("away" if second % 2 else "slow", LEASE)
            ticker.advance(timedelta(seconds=1))

    assert [line["error"] for line in lines] == ["slow", "away", "slow", "away", "slow"]


def test_failure_after_a_connection_is_news(reconnecting: Reconnecting) -> None:
    with capture_logs() as lines:
        reconnecting.failed("away", LEASE)
        reconnecting.succeeded()
        reconnecting.failed("away", LEASE)

    assert len(lines) == 2


def test_link_that_is_cut_while_it_was_of_use_is_made_again_at_once(
    reconnecting: Reconnecting,
) -> None:
    with capture_logs() as lines:
        for _ in range(20):
            assert reconnecting.failed("cut", LEASE, was_of_use=True) <= AT_ONCE
            reconnecting.succeeded()

    assert len(lines) == 1


def test_delays_grow_again_when_a_connection_is_of_no_use(reconnecting: Reconnecting) -> None:
    reconnecting.failed("cut", LEASE, was_of_use=True)
    reconnecting.succeeded()

    assert FIRST / 2 <= reconnecting.failed("cut", LEASE) <= FIRST
