"""How long a loop waits that looks for what is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.server.scheduler.shards import until_next

LOOK = datetime(2030, 1, 1, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)
MOST = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("next_in", "wait"),
    [
        pytest.param(None, MOST, id="nothing is due"),
        pytest.param(-MOMENT, MOST, id="what is due was not ours"),
        pytest.param(timedelta(0), MOST, id="what is due just then was not ours"),
        pytest.param(MOMENT, timedelta(0), id="it fell due after the look"),
        pytest.param(5 * MOMENT, 3 * MOMENT, id="it is due soon"),
        pytest.param(timedelta(hours=1), MOST, id="it is due later"),
    ],
)
def test_what_falls_due_after_the_look_is_not_waited_for(
    next_in: timedelta | None, wait: timedelta
) -> None:
    next_at = None if next_in is None else LOOK + next_in

    assert until_next(next_at, LOOK, LOOK + 2 * MOMENT, MOST) == wait
