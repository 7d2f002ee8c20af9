"""Shapes of runs that only one worker may take."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.domain.job import rules_of
from rota.domain.shape import (
    all_labels,
    alone,
    shape_of,
    unmet,
    without_its_worker,
    worker_of,
)
from tests.unit.domain.jobfile.jobfiles import spec_of


def shape(needs: dict[str, str], own: dict[str, str] | None = None) -> str:
    return shape_of(rules_of(spec_of(name="job", needs=needs)), own)


def test_needs_of_a_run_go_over_those_of_its_job() -> None:
    assert shape({"worker": "a", "site": "fra"}, {"worker": "b"}) == shape(
        {"site": "fra", "worker": "b"}
    )


@pytest.mark.parametrize("needs", [{}, {"site": "worker"}, {"site": '"worker"'}])
def test_most_shapes_are_for_no_one_worker(needs: dict[str, str]) -> None:
    assert worker_of(shape(needs)) == ""


def test_a_shape_knows_its_worker_also_where_its_run_goes_alone() -> None:
    assert worker_of(shape({"worker": "web-1"})) == "web-1"
    assert worker_of(alone(shape({"worker": "web-1"}))) == "web-1"


def test_a_label_of_its_own_makes_nobody_another_worker() -> None:
    labels = all_labels("web-2", {"worker": "web-1", "site": "fra"})

    assert unmet(shape({"worker": "web-1"}), labels, ()) == ["label worker=web-1"]


@pytest.mark.parametrize(
    ("gone_at", "action"),
    [(None, "rota worker list"), (datetime(2026, 3, 1, tzinfo=UTC), "rota worker show web-9")],
)
def test_only_a_worker_that_was_there_can_be_shown(gone_at: datetime | None, action: str) -> None:
    [reason] = without_its_worker("default", shape({"worker": "web-9"}), gone_at).reasons

    assert reason.action == action
