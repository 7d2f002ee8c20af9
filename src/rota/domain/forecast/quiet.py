"""Where there is room for one more job."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.forecast.load import Bucket

HOUR_MINUTES, DAY_MINUTES = 60, 24 * 60
_SHOWN = 3
_APART = {HOUR_MINUTES: 10, DAY_MINUTES: 60}  # minutes between two that are shown
_AROUND = range(-2, 3)


def quiet_minutes(minutes: Sequence[Bucket], first: int, cycle: int) -> list[int]:
    """Minutes of the hour or of the day that are the emptiest, by how full they get.

    `minutes` are consecutive minutes of a clock, from the one called `first` on.
    """
    load = [0.0] * cycle
    for index, bucket in enumerate(minutes):
        place = (first + index) % cycle
        load[place] = max(load[place], bucket.peak + bucket.mean)
    known = {(first + index) % cycle for index in range(len(minutes))}
    around = [sum(load[(i + d) % cycle] for d in _AROUND) for i in range(cycle)]
    # Among equals, one in the middle of a quiet stretch.
    ranked = sorted(known, key=lambda minute: (load[minute], around[minute], minute))
    return _apart(ranked, cycle)


def _apart(ranked: Sequence[int], cycle: int) -> list[int]:
    """The first few that are not close to one another, in order."""
    chosen: list[int] = []
    for minute in ranked:
        gaps = (abs(minute - other) for other in chosen)
        if all(min(gap, cycle - gap) >= _APART[cycle] for gap in gaps):
            chosen.append(minute)
        if len(chosen) == _SHOWN:
            break
    return sorted(chosen)
