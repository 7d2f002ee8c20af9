"""Shapes of runs that only one worker may take."""

from __future__ import annotations

import pytest

from rota.domain.job import rules_of
from rota.domain.shape import all_labels, alone, shape_of, unmet, worker_of
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
