from __future__ import annotations

import os

from bench.machine import CpuReading, counted_as_own, foreign_cores, read_cpu, wait_until_quiet

START = CpuReading(total=1_000, busy=400, own=50)


def test_own_work_is_no_foreign_load() -> None:
    after = CpuReading(total=1_020, busy=410, own=60)

    assert foreign_cores(START, after) == 0


def test_what_others_worked_is_told_in_cores() -> None:
    cores = os.cpu_count() or 1
    after = CpuReading(total=1_000 + 10 * cores, busy=415, own=60)

    assert foreign_cores(START, after) == 0.5


def test_rounding_never_makes_it_negative() -> None:
    after = CpuReading(total=1_020, busy=405, own=60)

    assert foreign_cores(START, after) == 0


def test_no_time_passed_means_no_load() -> None:
    assert foreign_cores(START, START) == 0


def test_machine_tells_its_processor_time() -> None:
    reading = read_cpu()

    assert 0 < reading.own <= reading.busy <= reading.total


def test_a_server_that_is_nobodys_child_can_be_counted_as_own() -> None:
    without = read_cpu().own
    with counted_as_own(os.getpid):
        counted = read_cpu().own
    after = read_cpu().own

    assert counted >= without + after / 2
    assert after < counted


def test_a_server_that_does_not_run_at_the_moment_works_nothing() -> None:
    with counted_as_own(lambda: None):
        assert read_cpu().own > 0


def test_waiting_for_quiet_ends_and_tells_what_others_use() -> None:
    cores = os.cpu_count() or 1

    assert 0 <= wait_until_quiet(0.0) <= cores
