"""What is told of a forecast: load, room, shortages, and how far to trust it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from rota.domain.forecast.ahead import JOB_GATE, WORKER_GATE, RunAhead, Setting
from rota.domain.forecast.forecast import Outcome, accuracy_of, by_job, saturations
from rota.domain.forecast.load import (
    HOUR_MINUTES,
    Bucket,
    Grid,
    band_of,
    buckets_of,
    measure_names,
    measure_of,
    merged,
    quiet_minutes,
    uses_of,
)
from rota.domain.keys import KeyKind, Rate, key_of
from tests.unit.domain.forecast.builders import job, lasting, runs, workers

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
RATE = key_of(KeyKind.RATE, "default", "s3-put")


def started(run: RunAhead, at: float, waits_for: str = "") -> RunAhead:
    run.start_at, run.waits_for = at, waits_for
    return run


class TestLoad:
    def test_a_use_counts_in_every_piece_that_it_touches(self) -> None:
        found = buckets_of([(-5.0, 15.0, 1.0), (12.0, 99.0, 2.0)], Grid(0.0, 10.0, 3))

        assert found == [Bucket(0.0, 1.0, 1.0), Bucket(10.0, 2.1, 3.0), Bucket(20.0, 2.0, 2.0)]

    def test_what_ends_makes_room_for_what_begins(self) -> None:
        found = buckets_of([(0.0, 5.0, 1.0), (5.0, 10.0, 1.0)], Grid(0.0, 10.0, 1))

        assert found == [Bucket(0.0, 1.0, 1.0)]

    def test_merged_pieces_have_the_highest_peak_and_the_mean_of_all(self) -> None:
        fine = buckets_of([(0.0, 5.0, 2.0)], Grid(0.0, 5.0, 4))

        assert merged(fine, 2) == [Bucket(0.0, 1.0, 2.0), Bucket(10.0, 0.0, 0.0)]


class TestMeasures:
    def test_workers_and_declarations_can_be_measured(self) -> None:
        found = Setting(workers(4, cpu=8), {RATE: Rate(10, 1.0, 10)})

        assert measure_names(found, "default") == ["slots", "cpu", "s3-put"]
        assert measure_names(found, "other") == ["slots", "cpu"]
        assert measure_of("gpu", found, "default") is None

    def test_a_token_counts_for_as_long_as_the_limit_looks(self) -> None:
        found = measure_of("s3-put", Setting([], {RATE: Rate(10, 60.0, 5)}), "default")
        assert found is not None
        [run] = runs(job(seconds=1.0, demands={RATE: 2}), 0.0)

        assert found.capacity == 15.0
        assert list(uses_of([started(run, 3.0)], found)) == [(3.0, 63.0, 2)]

    def test_the_band_is_what_short_and_long_runs_would_take(self) -> None:
        measure = measure_of("slots", Setting(workers(1)), "default")
        assert measure is not None
        [run] = runs(job(durations=lasting(10.0, low=5.0, high=15.0)), 0.0)

        low, high = band_of([started(run, 0.0)], measure, Grid(0.0, 10.0, 2))

        assert (low, high) == ([0.5, 0.0], [1.0, 0.5])


def test_quiet_minutes_are_the_emptiest_and_not_next_to_one_another() -> None:
    busy = {0, 1, 2, 15, 30, 45}
    minutes = [Bucket(i * 60.0, 0.0, 9.0 if (i + 50) % 60 in busy else 0.0) for i in range(120)]

    found = quiet_minutes(minutes, 50, HOUR_MINUTES)  # the first of these is called :50

    assert len(found) == 3
    assert not busy.intersection(found)
    assert all(later - earlier >= 10 for earlier, later in pairwise(found))


class TestSaturation:
    def test_waits_that_overlap_are_one_stretch(self) -> None:
        first, second, third = runs(job("a"), 0.0, 5.0, 100.0)
        waiting = [
            started(first, 10.0, WORKER_GATE),
            started(second, 20.0, WORKER_GATE),
            started(third, 110.0, WORKER_GATE),
        ]

        found = saturations(waiting, 1_000.0)

        assert [(it.begins_at, it.ends_at, it.waiting) for it in found] == [
            (0.0, 20.0, 2),
            (100.0, 110.0, 1),
        ]
        assert (found[0].what, found[0].longest_wait, found[0].jobs) == (
            "worker:default",
            15.0,
            ("a",),
        )

    def test_who_never_starts_waits_to_the_end(self) -> None:
        [run] = runs(job(), 10.0)
        run.waits_for = WORKER_GATE

        [found] = saturations([run], 100.0)

        assert (found.ends_at, found.longest_wait) == (100.0, 90.0)

    def test_a_job_that_keeps_itself_back_is_no_shortage(self) -> None:
        [run] = runs(job(), 0.0)

        assert saturations([started(run, 50.0, JOB_GATE)], 100.0) == []


class TestJobs:
    def test_who_never_starts_tells_what_it_waits_for_even_if_it_comes_last(self) -> None:
        [run] = runs(job(), 99.9)
        run.waits_for = WORKER_GATE

        [found] = by_job([run], 100.0)

        assert (found.unplaced, found.waits_for) == (1, "worker:default")


class TestAccuracy:
    @pytest.mark.parametrize(
        ("ahead", "error", "near"), [(5, 2, True), (5, 3, False), (600, 59, True), (600, 70, False)]
    )
    def test_near_is_within_two_seconds_or_a_tenth_of_the_time_ahead(
        self, ahead: int, error: int, near: bool
    ) -> None:
        actual = NOW + ahead * SECOND

        assert Outcome(NOW, actual - error * SECOND, actual).is_near is near

    def test_errors_are_told_by_half_and_by_nine_in_ten(self) -> None:
        late = [Outcome(NOW, NOW + SECOND, NOW + (1 + n) * SECOND) for n in range(11)]

        found = accuracy_of(late)

        assert found is not None
        assert (found.starts, found.usual_error, found.high_error) == (11, 5 * SECOND, 9 * SECOND)

    def test_nothing_is_claimed_without_a_prediction(self) -> None:
        assert accuracy_of([]) is None
