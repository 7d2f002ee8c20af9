"""Workload files, the runs they make, and what a simulation of them finds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median

import pytest

from rota.domain.errors import Invalid
from rota.domain.keys import Counted, Rate
from rota.domain.simulation import SimRun
from rota.domain.simulation.report import Report, simulate_workload
from rota.domain.simulation.workload import Lognormal, Period, arrivals, sample_of
from rota.domain.simulation.workload_file import read_workload

EXAMPLE = Path(__file__).parents[4] / "examples" / "workload.yaml"
WORKERS = "workers: [{name: w, count: 2, slots: 2, resources: {cpu: 2}}]\n"
DAY = Period(datetime(2026, 1, 5, tzinfo=UTC), timedelta(days=1))


def runs_of(jobs: str, period: Period = DAY) -> list[SimRun]:
    return [*arrivals(read_workload(f"{WORKERS}jobs: [{jobs}]"), period, Random(1))]


def simulated(text: str, hours: float = 1, part: float = 1.0, seed: int = 1) -> Report:
    period = Period(DAY.begins_at, timedelta(hours=hours))
    return simulate_workload(read_workload(text), period, part, Random(seed))


def test_a_schedule_comes_at_its_due_times() -> None:
    found = runs_of('{name: a, schedule: "0 */8 * * *", duration: 5m, timeout: 1m}')

    assert [run.arrives_at for run in found] == [0.0, 28_800.0, 57_600.0]
    assert {(run.seconds, run.expected) for run in found} == {(60.0, 300.0)}


def test_each_of_many_daily_jobs_comes_once_at_its_own_time() -> None:
    found = runs_of('{name: a, schedule: "@daily", schedules: 500, spread: 24h, duration: 1s}')

    times = [run.arrives_at for run in found]
    assert len({run.group for run in found}) == len(found) == 500
    assert times == sorted(times)
    assert 0 <= times[0] < 3_600
    assert median(times) == pytest.approx(43_200, rel=0.2)


def test_runs_come_at_random_at_their_rate() -> None:
    found = runs_of("{name: a, arrivals: {mean: 60, per: 1h}, duration: {from: 1s, to: 3s}}")

    assert len(found) == pytest.approx(24 * 60, rel=0.1)
    assert all(1 <= run.seconds <= 3 for run in found)


def test_a_long_tail_has_the_quantiles_it_was_given() -> None:
    random, lengths = Random(1), Lognormal(60.0, 600.0)
    drawn = sorted(lengths.draw(random) for _ in range(20_000))

    assert drawn[10_000] == pytest.approx(60, rel=0.05)
    assert drawn[19_000] == pytest.approx(600, rel=0.1)
    assert lengths.mean == pytest.approx(sum(drawn) / len(drawn), rel=0.1)


def test_too_many_runs_are_refused_with_the_sample_that_would_do() -> None:
    with pytest.raises(Invalid) as refused:
        runs_of("{name: a, schedule: every 1m, schedules: 1000000, duration: 1s}")

    assert refused.value.problems[0].hint == "simulate a scaled sample: --sample 0.003"


def test_resources_and_limits_become_keys_and_shapes() -> None:
    workload = read_workload(EXAMPLE.read_text())
    jobs = {job.name: job for job in workload.jobs}

    assert workload.rules == {
        "rate:default/s3-put": Rate(1, 1.0, 5),
        "resource:default/pg-license": Counted(10),
    }
    assert workload.demands["nightly-report"] == {"resource:default/pg-license": 1}
    assert "pg-license" not in jobs["nightly-report"].shape
    assert '"cpu":2000' in jobs["nightly-report"].shape
    assert (jobs["upload"].share, jobs["heartbeat"].share) == ("web", "default/anybody")


def test_a_sample_scales_workers_runs_and_limits_alike() -> None:
    sample = sample_of(read_workload(EXAMPLE.read_text()), 0.5, Random(1))

    assert [each.count for each in sample.workers] == [6, 1]
    assert [job.schedules for job in sample.jobs[:2]] == [100, 150]
    rate = sample.rules["rate:default/s3-put"]
    assert isinstance(rate, Rate)
    assert (rate.rate, rate.burst) == (0.5, 2)
    assert sample.rules["resource:default/pg-license"] == Counted(5)


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ("{name: a, duration: 1s}", '2:8 job a has no "schedule"'),
        ("{name: a, schedule: 1h 2, duration: 1s}", "2:28"),
        ("{name: a, schedule: every 1h}", '2:8 job a has no "duration"'),
        (
            "{name: a, schedule: every 1h, duration: {median: 2s, p95: 1s}}",
            "2:66 p95 must be longer than median",
        ),
        (
            "{name: a, schedule: every 1h, duration: {from: 2s}}",
            "2:48 duration is one time, or from and to, or median and p95",
        ),
        (
            "{name: a, arrivals: {mean: 1, per: 1s}, schedules: 4, duration: 1s}",
            '2:48 "schedules" does not go with "arrivals"',
        ),
        (
            "{name: a, schedule: every 1h, duration: 1s, resources: {gup: 1}}",
            '2:64 there is no resource "gup", and no worker offers it',
        ),
        (
            "{name: a, schedule: every 1h, duration: 1s, rate_limits: [s3]}",
            '2:66 there is no limit "s3"',
        ),
        ("{name: a, schedule: every 1h, duration: 1s, shedules: 3}", '2:52 unknown key "shedules"'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(job: str, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_workload(f"{WORKERS}jobs: [{job}]")

    [first, *_] = refused.value.problems
    assert f"{first.line}:{first.column} {first.message}".startswith(problem)


def test_workers_offer_amounts_only() -> None:
    text = "workers: [{name: w, resources: {slots: 4, cpu: read}}]\njobs: []\nshares: {a: 0}"

    with pytest.raises(Invalid) as refused:
        read_workload(text)

    assert [problem.message for problem in refused.value.problems] == [
        "slots are no resource",
        "a worker offers an amount of cpu",
        "jobs must have 1 to 10,000 entries",
        "the weight of a must be above 0",
    ]


CROWDED = """
workers: [{name: w, count: 1, slots: 1}]
jobs:
  - {name: a, schedule: every 1m, duration: 40s, share: a, start_within: 30s, output: 1KiB}
  - {name: b, schedule: every 1m, duration: 40s, share: b, priority: 2}
shares: {a: 3}
"""


def test_the_report_adds_up() -> None:
    found = simulated(CROWDED)

    assert found.started + found.still_waiting == 120
    assert found.ended in (found.started, found.started - 1)
    [slots] = found.uses
    assert (slots.pool, slots.resource, slots.peak) == ("default", "slots", 1.0)
    assert slots.mean == pytest.approx(1.0)
    assert sum(share.got for share in found.shares.values()) == pytest.approx(1.0)
    assert found.shares["a"].entitled == 0.75
    [crowd] = found.saturations
    assert (crowd.what, crowd.begins_at) == ("pool default", 0.0)
    assert found.throughput.runs_per_second == pytest.approx(90 / 3600, rel=0.02)
    assert found.throughput.output_bytes_per_day == found.jobs["a"].waits.runs * 24 * 1024


def test_lateness_counts_against_the_objective() -> None:
    found = simulated(CROWDED)

    assert found.jobs["b"].late == 0  # it has no objective
    assert 0 < found.jobs["a"].late < found.jobs["a"].waits.runs
    assert found.jobs["a"].waits.longest < found.jobs["b"].waits.longest


def test_the_same_seed_finds_the_same() -> None:
    text = EXAMPLE.read_text()

    assert simulated(text, 0.2, 0.5, seed=3) == simulated(text, 0.2, 0.5, seed=3)
    assert simulated(text, 0.2, 0.5, seed=3) != simulated(text, 0.2, 0.5, seed=4)


def test_runs_that_nobody_could_take_wait_for_ever() -> None:
    jobs = "jobs: [{name: a, schedule: every 1m, duration: 1s, resources: {cpu: 3}}]"

    found = simulated(WORKERS + jobs)

    assert (found.started, found.still_waiting) == (0, 60)
    assert Counter(each.what for each in found.saturations) == {"worker:default": 1}
