from __future__ import annotations

from datetime import timedelta

from rota.domain.lease import StoreTime
from testkit.clock import START

SECOND = timedelta(seconds=1)


def test_the_stores_time_goes_on_with_the_nodes_monotonic_clock() -> None:
    known = StoreTime(START, received_at=100.0)

    assert known.at(100.0) == START
    assert known.at(102.5) == START + 2.5 * SECOND


def test_a_time_of_the_store_has_its_monotonic_time() -> None:
    known = StoreTime(START, received_at=100.0)

    assert known.monotonic_at(START + 3 * SECOND) == 103.0
    assert known.at(known.monotonic_at(START + 7 * SECOND)) == START + 7 * SECOND


def test_an_answer_that_took_long_is_never_early() -> None:
    """The store said its time, and a second passed before that was heard."""
    said_at, heard_at = 100.0, 101.0
    known = StoreTime(START, heard_at)

    due = known.monotonic_at(START + 5 * SECOND)

    assert START + timedelta(seconds=due - said_at) >= START + 5 * SECOND
