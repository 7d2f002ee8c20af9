"""Bounds are judged as strictly as the plan says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from testkit.chaos.bounds import Bound
from testkit.chaos.campaign import Plan, exceeded

SECOND = timedelta(seconds=1)
LATE = Bound("dead server", 6 * SECOND, 8 * SECOND)


def test_a_bound_is_a_bound_unless_the_plan_allows_more() -> None:
    plan = Plan(SECOND, seed=1)

    [violation] = exceeded([LATE], plan.allowance)

    assert (violation.invariant, violation.subject) == ("bound", "dead server")


@pytest.mark.parametrize(("allowance", "count"), [(SECOND, 1), (2 * SECOND, 0)])
def test_a_machine_with_little_to_spare_is_allowed_so_much_and_no_more(
    allowance: timedelta, count: int
) -> None:
    assert len(list(exceeded([LATE], allowance))) == count
