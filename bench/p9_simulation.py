"""P9: a simulated day of ten thousand workers and a million schedules."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from datetime import timedelta

from bench.contest import Contestant, Figures, Plan, take_turns
from bench.figures import Comparison, at_most
from rota.runtime.offline import Simulation, simulate_text

_GOAL_SECONDS = 600
_KIBIBYTES_OF_A_MEGABYTE = 1_000_000 / 1024


def run(plan: Plan) -> list[Comparison]:
    workers, schedules = plan.pick(10_000, 200), plan.pick(1_000_000, 20_000)
    contestant = Contestant("rota", lambda: _in_a_process(workers, schedules))
    result = take_turns([contestant], plan)["rota"]
    what = f"a day of {workers:,} workers and {schedules:,} schedules"
    seconds, memory = result.sample("seconds", "s"), result.sample("megabytes", "MB")
    load = result.foreign_cores
    return [
        Comparison("P9", what, seconds, goal=at_most(_GOAL_SECONDS), foreign_cores=load),
        Comparison("P9", f"{what}, memory", memory, foreign_cores=load),
    ]


def workload(workers: int, schedules: int) -> str:
    """Nine in ten somewhere in the day, of two sizes; the others all at nine o'clock."""
    daily = {"schedule": "@daily", "spread": "24h"}
    jobs = [
        {
            "name": "plain",
            "schedules": schedules * 7 // 10,
            "duration": {"median": "10m", "p95": "1h"},
            **daily,
        },
        {
            "name": "sized",
            "schedules": schedules * 2 // 10,
            "duration": {"median": "30m", "p95": "2h"},
            "resources": {"cpu": 2, "memory": "4GiB"},
            "user": "another",
            **daily,
        },
        {
            "name": "rush",
            "schedules": schedules // 10,
            "schedule": "0 9 * * *",
            "spread": "5m",
            "duration": "5m",
            "priority": 7,
            "share": "rush",
            "resources": {"cpu": 1},
        },
    ]
    offer = {"cpu": 8, "memory": "32GiB"}
    staff = [{"name": "worker", "count": workers, "slots": 4, "resources": offer}]
    return json.dumps({"workers": staff, "jobs": jobs})


def _in_a_process(workers: int, schedules: int) -> Figures:
    """In one of its own, whose memory nothing else has used."""
    command = [sys.executable, "-m", "bench.p9_simulation", str(workers), str(schedules)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def _measure(workers: int, schedules: int) -> Figures:
    began = time.perf_counter()
    report = simulate_text(workload(workers, schedules), Simulation(timedelta(days=1)))
    seconds = time.perf_counter() - began
    if report.started != schedules:
        raise RuntimeError(f"{report.started:,} of {schedules:,} runs started")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "megabytes": peak / _KIBIBYTES_OF_A_MEGABYTE}


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))
