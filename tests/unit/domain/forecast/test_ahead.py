from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.forecast.ahead import Durations, Source, durations_of, remembered_runs


def test_history_says_how_long_runs_take_whatever_the_job_expects() -> None:
    found = durations_of([float(n) for n in range(1, 12)], timedelta(hours=1))

    assert found == Durations(2.0, 6.0, 10.0, Source.HISTORY)


def test_without_history_the_job_is_believed() -> None:
    assert durations_of([], timedelta(minutes=12)) == Durations(720, 720, 720, Source.EXPECT)


def test_what_nobody_knows_is_a_guess() -> None:
    assert durations_of([], None).source is Source.GUESS


@pytest.mark.parametrize(("jobs", "runs"), [(0, 50), (2_000, 50), (5_000, 20), (20_000, 5)])
def test_the_more_jobs_there_are_the_fewer_runs_of_each_are_looked_at(jobs: int, runs: int) -> None:
    assert remembered_runs(jobs) == runs


@pytest.mark.parametrize(
    ("elapsed", "left"),
    [(4.0, 6.0), (10.0, 20.0), (25.0, 5.0), (30.0, 30.0), (100.0, 100.0)],
)
def test_a_run_that_lasts_longer_than_usual_is_slow_and_then_takes_as_long_again(
    elapsed: float, left: float
) -> None:
    known = Durations(1.0, 10.0, 30.0, Source.HISTORY)

    assert known.left_after(elapsed) == pytest.approx(left)
    assert known.left_after(elapsed, most=4.0) == 4.0
