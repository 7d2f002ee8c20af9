from __future__ import annotations

import json
import re

from bench.figures import Comparison, Goal, Sample, at_least_times, at_most
from bench.table import as_document, number_text, render, verdict

QUIET, BUSY = 0.01, 0.5


def comparison(
    *values: float,
    peer: float | None = 100,
    goal: Goal | None = None,
    left_out: tuple[float, ...] = (),
) -> Comparison:
    return Comparison(
        "P2",
        "drain",
        Sample(values, "runs/s", left_out),
        "" if peer is None else "huey",
        None if peer is None else Sample((peer,), "runs/s"),
        goal,
        QUIET if values else BUSY,
    )


def test_line_has_both_figures_their_ratio_the_target_and_the_verdict() -> None:
    line = render([comparison(250, goal=at_least_times(2))]).splitlines()[-1]

    assert re.split(r"  +", line) == [
        "P2", "drain", "250 runs/s", "huey", "100 runs/s", "2.50 ×", "≥ 2 ×", "met"
    ]  # fmt: skip


def test_several_turns_show_their_spread() -> None:
    assert "12,500 runs/s (11,000–14,000)" in render([comparison(12_500, 11_000, 14_000)])


def test_columns_are_aligned() -> None:
    lines = render([comparison(1), comparison(1_000_000)]).splitlines()

    assert len({line.index("huey") for line in lines if "huey" in line}) == 1


def test_missed_target_says_by_how_much() -> None:
    assert verdict(comparison(150, goal=at_least_times(2))) == "missed by 25%"


def test_line_without_a_target_has_no_verdict() -> None:
    assert verdict(comparison(150)) == ""


def test_turns_that_were_left_out_are_told_and_explained() -> None:
    text = render([comparison(200, 300, 250, left_out=(10,), goal=at_least_times(2))])

    assert "250 runs/s (200–300; 1 left out)" in text
    assert "more than 0.2 cores" in text
    assert text.splitlines()[2].endswith("met")


def test_figures_without_a_quiet_turn_are_shown_but_not_judged() -> None:
    text = render([comparison(left_out=(250, 270), goal=at_least_times(2))])

    assert "260 runs/s* (250–270)" in text
    assert "not judged*" in text
    assert "other processes used up to 0.5 cores in every turn" in text


def test_figures_of_a_quiet_machine_need_no_note() -> None:
    text = render([comparison(250, goal=at_least_times(2))])

    assert "busy" not in text
    assert "left out" not in text


def test_document_keeps_every_turn() -> None:
    document = as_document(comparison(3, 1, 2, peer=None, goal=at_most(5)))

    assert document["rota"] == {
        "median": 2, "values": [3, 1, 2], "left_out": [], "unit": "runs/s"
    }  # fmt: skip
    assert document["peer"] is None
    assert document["target"] == "≤ 5 runs/s"
    assert json.loads(json.dumps(document)) == document


def test_document_tells_which_turns_were_left_out() -> None:
    document = as_document(comparison(200, left_out=(10,), goal=at_most(5)))

    assert document["rota"]["left_out"] == [10]
    assert document["is_judged"]
    assert not as_document(comparison(left_out=(10,)))["is_judged"]


def test_numbers_show_the_digits_that_matter() -> None:
    assert [number_text(value) for value in (0.123, 1.0, 12.34, 123.4, 12_345.6)] == [
        "0.12", "1.00", "12.3", "123", "12,346"
    ]  # fmt: skip
