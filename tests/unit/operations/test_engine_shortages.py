from __future__ import annotations

from datetime import timedelta

from rota.domain.forecast.forecast import Saturation
from rota.operations.engine import ShortagesAhead
from testkit.clock import START

SECOND = timedelta(seconds=1)


def noted(*spans: tuple[str, float, float]) -> ShortagesAhead:
    """What runs out, from when to when in seconds."""
    ahead = ShortagesAhead()
    found = [Saturation(what, begin, end, 1, end - begin, ("job",)) for what, begin, end in spans]
    ahead.note(START, found)
    return ahead


def test_the_next_time_counts_that_is_not_over() -> None:
    ahead = noted(("worker:default", 60.0, 120.0), ("worker:default", 300.0, 360.0))

    told = [ahead.seconds_ahead(START + at * SECOND) for at in (0, 90, 120, 360)]

    assert told == [
        {"worker:default": 60.0},
        {"worker:default": 0.0},
        {"worker:default": 180.0},
        {},
    ]


def test_a_limit_is_told_once_for_all_and_inputs_are_not() -> None:
    ahead = noted(
        ("rate:default/mail/user=ann", 10.0, 20.0),
        ("rate:default/mail/user=ben", 15.0, 20.0),
        ('exclusive:default/{"host":"a/b"}', 10.0, 20.0),
    )

    assert ahead.seconds_ahead(START) == {"rate:default/mail": 10.0}
