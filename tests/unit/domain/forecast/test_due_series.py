"""Due runs that wait for the jobs which they come after."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from rota.domain.forecast.ahead import JobAhead, RunAhead
from rota.domain.forecast.expansion import (
    DueRun,
    DueSeries,
    Following,
    Sequels,
    SeriesProgress,
    split_released,
)
from rota.domain.forecast.placing import Program, place
from rota.domain.gates import after_key
from rota.domain.spec import Overlap
from tests.unit.domain.forecast.builders import job, runs, setting

UPSTREAM, OTHER = after_key("default", "first"), after_key("default", "other")


def series(
    *due: float,
    upstreams: tuple[str, ...] = (UPSTREAM,),
    overlap: Overlap = Overlap.ALLOW,
    within: float = inf,
    of: JobAhead | None = None,
    **fields: Any,
) -> DueSeries:
    """Due at these times, and before them at -100."""
    made = runs(of or job("second", seconds=10.0), *due)
    before = (-100.0, *due[:-1])
    dues = [DueRun(run, at, run.due_at + within) for run, at in zip(made, before, strict=True)]
    return DueSeries(upstreams, overlap, dues, **fields)


def arrivals(found: list[RunAhead]) -> list[float]:
    return [run.arrives_at for run in found]


def test_a_due_run_waits_until_its_upstream_has_completed_since_the_due_time_before() -> None:
    progress = SeriesProgress(series(100.0, 200.0, 300.0, 400.0))

    [first] = progress.complete(UPSTREAM, 90.0)
    second, third = progress.complete(UPSTREAM, 240.0)  # later than 100, and than 200
    [never] = progress.left()

    assert arrivals([first, second, third]) == [100.0, 240.0, 300.0]
    assert [run.waits_for for run in (first, second, third, never)] == ["", UPSTREAM, "", UPSTREAM]


def test_what_has_completed_already_lets_the_first_go() -> None:
    free, others = split_released(series(50.0, 150.0, completed={UPSTREAM: -20.0}))
    stuck, _ = split_released(series(50.0, 150.0, completed={UPSTREAM: -120.0}))

    assert arrivals(free) == [50.0]
    assert [due.run.due_at for due in others.runs] == [150.0]
    assert stuck == []


def test_the_last_of_several_upstreams_decides() -> None:
    progress = SeriesProgress(series(100.0, upstreams=(UPSTREAM, OTHER)))

    assert [*progress.complete(UPSTREAM, 300.0)] == []
    [found] = progress.complete(OTHER, 200.0)

    assert (found.arrives_at, found.waits_for) == (300.0, UPSTREAM)


@pytest.mark.parametrize("completes_at", [131.0, None])
def test_a_run_that_waits_for_too_long_does_not_start(completes_at: float | None) -> None:
    progress = SeriesProgress(series(100.0, within=30.0))
    if completes_at is not None:
        assert [*progress.complete(UPSTREAM, completes_at)] == []

    [missed] = progress.left()

    assert (missed.start_at, missed.waits_for) == (inf, UPSTREAM)


@pytest.mark.parametrize(
    ("overlap", "come", "never"),
    [
        (Overlap.ALLOW, [100, 200, 300], [400, 500]),
        (Overlap.QUEUE_ALL, [100, 200, 300], [400, 500]),
        (Overlap.QUEUE_ONE, [200, 300], [500]),  # the newest takes the place of one that waits
        (Overlap.CANCEL_PREVIOUS, [200, 300], [500]),
        (Overlap.SKIP, [100, 300], [400]),  # the oldest keeps newer ones away
    ],
)
def test_due_times_that_find_one_waiting_come_to_what_the_overlap_rule_says(
    overlap: Overlap, come: list[int], never: list[int]
) -> None:
    progress = SeriesProgress(series(100.0, 200.0, 300.0, 400.0, 500.0, overlap=overlap))

    found = [*progress.complete(UPSTREAM, 250.0)]

    assert [run.due_at for run in found] == come
    assert [run.due_at for run in progress.left()] == never


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "decided"])
def test_a_due_run_comes_when_the_run_that_it_waits_for_ends_where_it_was_placed(
    is_plain: bool,
) -> None:
    first = job("first", seconds=40.0, is_plain=is_plain)
    second = job("second", seconds=1.0, is_plain=is_plain)
    sequels = Sequels(due_series={second.id: series(50.0, 60.0, of=second)})
    coming = runs(job("busy", seconds=30.0, is_plain=is_plain), 0.0) + runs(first, 10.0)

    placed = place(Program([], coming, lambda: Following(sequels)), setting(1), 200.0)

    found = [run for run in placed.runs if run.job is second]
    assert [(run.start_at, run.wait) for run in found] == [(70.0, 20.0), (71.0, 11.0)]
    assert [run.waits_for for run in found] == [UPSTREAM, UPSTREAM]


def test_what_others_keep_from_coming_is_told() -> None:
    second = job("second")
    sequels = Sequels(due_series={second.id: series(50.0, of=second)})

    placed = place(Program([], [], lambda: Following(sequels)), setting(1), 200.0)

    assert [(run.start_at, run.waits_for) for run in placed.runs] == [(inf, UPSTREAM)]


def test_an_interval_from_completion_waits_each_time() -> None:
    first, second = job("first", seconds=5.0), job("second", seconds=10.0)
    sequels = Sequels(
        again={second.id: lambda end: end + 20.0}, due_series={second.id: series(10.0, of=second)}
    )
    coming = runs(first, 0.0, 60.0)

    placed = place(Program([], coming, lambda: Following(sequels)), setting(2), 200.0)

    found = [run for run in placed.runs if run.job is second]
    assert [run.due_at for run in found] == [10.0, 40.0, 95.0, 125.0]
    assert [run.start_at for run in found] == [10.0, 65.0, 95.0, inf]
