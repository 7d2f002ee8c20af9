"""P4: how late function jobs start, on a durable store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from bench import stamps
from bench.contest import Contestant, Figures, Plan, Result, take_turns, wait_for
from bench.figures import Comparison, Goal, at_most, percentile
from bench.functions import mark
from bench.peers import environment
from bench.rota_up import FUNCTIONS, Home, rota_up, temporary_home

_SLOTS = 1_000  # room for all that are due at once
_LEAD_SECONDS = 10.0  # between definition and first due time, and some more for each job
_LEAD_SECONDS_PER_JOB = 0.006
_MORE_PATIENCE = 5  # times the lead, when the machine is too busy for it
_RUN_SECONDS = 600.0
_UNIT = "ms"
_PEERS = {"APScheduler, SQLite": "sqlite", "APScheduler, memory": "memory"}


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


def run(plan: Plan) -> list[Comparison]:
    stream = Pattern("100 due/s", plan.pick(3_000, 300), 0.01, "p99", at_most(5))
    burst = Pattern("due at once", plan.pick(1_000, 200), 0.0, "max", at_most(100))
    return _compare(stream, plan) + _compare(burst, plan)


def _compare(pattern: Pattern, plan: Plan) -> list[Comparison]:
    contestants = [Contestant("rota", partial(_patiently, partial(_rota, pattern)))]
    contestants += [
        Contestant(name, partial(_patiently, partial(_apscheduler, pattern, kind)))
        for name, kind in _PEERS.items()
    ]
    results = take_turns(contestants, plan)
    figures = dict.fromkeys(("p50", "p99", "max"), None) | {pattern.figure: pattern.goal}
    return [
        _line(pattern, figure, goal, peer, results)
        for figure, goal in figures.items()
        for peer in _PEERS
    ]


def _line(
    pattern: Pattern, figure: str, goal: Goal | None, peer: str, results: dict[str, Result]
) -> Comparison:
    return Comparison(
        "P4",
        f"lateness of {pattern.count:,} {pattern.title}, {figure}",
        results["rota"].sample(figure, _UNIT),
        peer,
        results[peer].sample(figure, _UNIT),
        goal,
        max(results["rota"].foreign_load, results[peer].foreign_load),
    )


def _patiently(measure: Callable[[int], Figures]) -> Figures:
    """Measure; where defining the jobs takes too long, again with a later first due time."""
    try:
        return measure(1)
    except TooLate:
        return measure(_MORE_PATIENCE)


def _rota(pattern: Pattern, patience: int) -> Figures:
    with temporary_home() as home, rota_up(home, slots=_SLOTS, app=FUNCTIONS) as server:
        first = pattern.first_due(patience)
        server.client.apply(_job_file(pattern.due_times(first)))
        if time.time() > first:
            raise TooLate
        wait_for(lambda: _is_done(home, pattern), _RUN_SECONDS, "all jobs")
        return _figures(home)


def _job_file(due_times: list[float]) -> str:
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


def _apscheduler(pattern: Pattern, kind: str, patience: int) -> Figures:
    with temporary_home() as home:
        store = f"sqlite:///{home.folder}/jobs.db" if kind == "sqlite" else kind
        arguments = [store, pattern.first_due(patience), pattern.spacing_seconds, pattern.count]
        environ = {stamps.VARIABLE: str(home.stamps)}
        with environment.running("apscheduler_dates", *arguments, environ=environ) as process:
            wait_for(
                lambda: _is_done(home, pattern) or process.poll() is not None,
                _RUN_SECONDS,
                "all jobs",
            )
            if process.poll() is not None:  # it runs until it is stopped, unless it was too late
                raise TooLate
        return _figures(home)


def _is_done(home: Home, pattern: Pattern) -> bool:
    return stamps.count_marks(home.stamps) >= pattern.count


def _figures(home: Home) -> Figures:
    lateness = [seconds * 1_000 for seconds in stamps.read_lateness(home.stamps)]
    return {
        "min": min(lateness),
        "p50": percentile(lateness, 50),
        "p99": percentile(lateness, 99),
        "max": max(lateness),
    }
