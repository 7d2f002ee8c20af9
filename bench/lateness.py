"""How late function jobs start: what is due when, and what is said about it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from bench import stamps
from bench.contest import Contestant, Figures, Plan, Result, take_turns
from bench.figures import Comparison, Goal, percentile
from bench.functions import mark
from bench.rota_up import Home

RUN_SECONDS = 600.0
SLOTS = 1_000  # room for all that are due at once

_LEAD_SECONDS = 10.0  # between definition and first due time, and some more for each job
_LEAD_SECONDS_PER_JOB = 0.006
_MORE_PATIENCE = 5  # times the lead, when the machine is too busy for it
_UNIT = "ms"


class TooLate(Exception):
    """The first due time came before all jobs were defined."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Due times, and what is expected of them."""

    title: str
    count: int
    spacing_seconds: float
    figure: str  # which figure the target is for
    goal: Goal

    def first_due(self, patience: int) -> float:
        """Far enough from now to define all jobs before."""
        lead = _LEAD_SECONDS + self.count * _LEAD_SECONDS_PER_JOB
        return float(int(time.time() + lead * patience) + 1)

    def due_times(self, first: float) -> list[float]:
        return [first + number * self.spacing_seconds for number in range(self.count)]

    def is_done(self, home: Home) -> bool:
        return stamps.count_marks(home.stamps) >= self.count


# Given the pattern and how many times the lead to wait; `TooLate` if that was not enough.
Measure = Callable[[Pattern, int], Figures]


def compare(
    pattern: Pattern, store: str, rota: Measure, peers: Mapping[str, Measure], plan: Plan
) -> list[Comparison]:
    """One line for each figure and peer."""
    contestants = [
        Contestant(name, partial(_patiently, measure, pattern))
        for name, measure in {"rota": rota, **peers}.items()
    ]
    results = take_turns(contestants, plan)
    figures = dict.fromkeys(("p50", "p99", "max"), None) | {pattern.figure: pattern.goal}
    what = f"lateness of {pattern.count:,} {pattern.title}, {store}"
    return [
        _line(f"{what}, {figure}", figure, goal, peer, results)
        for figure, goal in figures.items()
        for peer in peers
    ]


def job_file(due_times: list[float]) -> str:
    """One job for each due time."""
    jobs = [
        {
            "name": f"due-{number}",
            "type": "python",
            "function": mark.function,
            "schedule": datetime.fromtimestamp(due, UTC).isoformat(),
        }
        for number, due in enumerate(due_times)
    ]
    return json.dumps({"jobs": jobs})


def check_in_time(first: float) -> None:
    """`TooLate` if the first due time has passed."""
    if time.time() > first:
        raise TooLate


def figures(home: Home) -> Figures:
    lateness = [seconds * 1_000 for seconds in stamps.read_lateness(home.stamps)]
    return {
        "min": min(lateness),
        "p50": percentile(lateness, 50),
        "p99": percentile(lateness, 99),
        "max": max(lateness),
    }


def _patiently(measure: Measure, pattern: Pattern) -> Figures:
    """Measure; where defining the jobs takes too long, again with a later first due time."""
    try:
        return measure(pattern, 1)
    except TooLate:
        return measure(pattern, _MORE_PATIENCE)


def _line(
    what: str, figure: str, goal: Goal | None, peer: str, results: dict[str, Result]
) -> Comparison:
    return Comparison(
        "P4",
        what,
        results["rota"].sample(figure, _UNIT),
        peer,
        results[peer].sample(figure, _UNIT),
        goal,
        max(results["rota"].foreign_cores, results[peer].foreign_cores),
    )
