from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from testkit.waiting import eventually

SOON = timedelta(milliseconds=50)


def test_first_true_answer_is_returned() -> None:
    numbers = count()

    assert eventually(lambda: next(numbers)) == 1


def test_assertion_that_fails_at_first_is_tried_again() -> None:
    numbers = count()

    def claim() -> bool:
        assert next(numbers) > 2
        return True

    assert eventually(claim)
    assert next(numbers) == 4


def test_claim_that_never_holds_is_told_with_its_reason() -> None:
    def claim() -> bool:
        raise AssertionError("no cheese left")

    with pytest.raises(AssertionError, match="no cheese left"):
        eventually(claim, within=SOON)


def test_false_answer_is_shown() -> None:
    with pytest.raises(AssertionError, match="still 0 after"):
        eventually(lambda: 0, within=SOON)


def test_other_errors_end_the_waiting_at_once() -> None:
    def claim() -> bool:
        raise ChildProcessError("it ended")

    with pytest.raises(ChildProcessError):
        eventually(claim, within=timedelta(hours=1))
