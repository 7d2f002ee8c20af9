"""Stretches of time: where a span on local clocks lies in UTC, and the union of many.

Both local time and UTC are counted in whole seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rota.domain.schedule.local_times import CLOCK_MARGIN, DAY_SECONDS
from rota.domain.schedule.zones import LAST_SECOND, Zone

# Of a blackout, and how far ahead its end is looked for: disable a job that rests longer.
LONGEST = 5 * 366 * DAY_SECONDS


class Stretch(NamedTuple):
    first: int
    end: int  # exclusive


def on_clocks(zone: Zone, local: Stretch) -> Stretch | None:
    """From the first to the last moment at which clocks show a time of the span; None: never.

    One window stays one stretch: it begins after a gap that swallows its beginning, and where
    clocks go back it ends only when its end is reached for the last time.
    """
    pieces = list(_pieces(zone, local))
    if not pieces:
        return None
    return Stretch(pieces[0].first, pieces[-1].end)


def edges(stretches: Iterable[Stretch], within: Stretch) -> tuple[int, ...]:
    """The union, cut to `within`, as ascending seconds: in, out, in, out …"""
    found: list[int] = []
    for first, end in sorted(stretches):
        first, end = max(first, within.first), min(end, within.end)
        if first >= end:
            continue
        if found and first <= found[-1]:
            found[-1] = max(found[-1], end)
        else:
            found += (first, end)
    return tuple(found)


def _pieces(zone: Zone, local: Stretch) -> Iterator[Stretch]:
    second = local.first - CLOCK_MARGIN
    while second < min(local.end + CLOCK_MARGIN, LAST_SECOND + 1):
        period = zone.period_at(second)
        first = max(period.start, local.first - period.offset)
        end = min(period.end, local.end - period.offset)
        if first < end:
            yield Stretch(first, end)
        second = period.end
