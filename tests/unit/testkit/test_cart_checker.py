from __future__ import annotations

from collections.abc import Sequence

from testkit.cart_checker import CartFault, CartFinding, ItemRun, check_cart
from testkit.evidence import Event, Mark


def lived(run: str, start: float, end: float, attempt: int = 1) -> list[Mark]:
    return [
        Mark("job", run, attempt, Event.START, start),
        Mark("job", run, attempt, Event.END, end),
    ]


def wave(number: int, *runs: str, round_: int = 1) -> dict[str, ItemRun]:
    """Runs of items that are called as they are, without the stroke of a second one."""
    return {run: ItemRun(run.rstrip("'"), number, round_) for run in runs}


def faults(findings: Sequence[CartFinding]) -> list[CartFault]:
    return [finding.fault for finding in findings]


class TestOrder:
    def test_wave_after_wave_is_well(self) -> None:
        marks = lived("a", 1.0, 2.0) + lived("b", 1.0, 3.0) + lived("c", 3.0, 4.0)

        assert check_cart(marks, wave(1, "a", "b") | wave(2, "c")) == []

    def test_item_that_begins_before_the_last_of_a_lower_wave_ended_is_early(self) -> None:
        marks = lived("a", 1.0, 2.0) + lived("b", 1.0, 3.0) + lived("c", 2.5, 4.0)

        assert check_cart(marks, wave(1, "a", "b") | wave(2, "c")) == [
            CartFinding(CartFault.EARLY, "c of wave 2 before b of wave 1")
        ]

    def test_any_lower_wave_counts_and_not_only_the_one_before(self) -> None:
        marks = lived("a", 1.0, 9.0) + lived("b", 2.0, 3.0) + lived("c", 4.0, 5.0)

        found = check_cart(marks, wave(1, "a") | wave(2, "b") | wave(3, "c"))
        assert [finding.detail for finding in found] == [
            "b of wave 2 before a of wave 1",
            "c of wave 3 before a of wave 1",
        ]

    def test_retry_of_a_lower_wave_counts_until_its_last_attempt_ended(self) -> None:
        marks = lived("a", 1.0, 2.0) + lived("a", 5.0, 6.0, attempt=2) + lived("c", 3.0, 4.0)

        assert faults(check_cart(marks, wave(1, "a") | wave(2, "c"))) == [CartFault.EARLY]

    def test_gap_in_the_numbers_is_no_fault(self) -> None:
        marks = lived("a", 1.0, 2.0) + lived("c", 2.0, 4.0)

        assert check_cart(marks, wave(10, "a") | wave(30, "c")) == []

    def test_items_that_are_asked_for_again_are_judged_among_themselves(self) -> None:
        marks = lived("a", 1.0, 2.0) + lived("c", 2.0, 3.0) + lived("a'", 4.0, 5.0)

        assert check_cart(marks, wave(1, "a") | wave(2, "c") | wave(1, "a'", round_=2)) == []

    def test_waves_hold_when_items_are_asked_for_again(self) -> None:
        marks = lived("a'", 4.0, 6.0) + lived("c'", 5.0, 7.0)

        again = wave(1, "a'", round_=2) | wave(2, "c'", round_=2)
        assert faults(check_cart(marks, again)) == [CartFault.EARLY]


class TestItems:
    def test_run_of_an_item_that_begins_during_another_of_it_is_an_overlap(self) -> None:
        marks = lived("a", 1.0, 3.0) + lived("a'", 2.0, 4.0)

        found = check_cart(marks, wave(1, "a") | wave(1, "a'", round_=2))
        assert faults(found) == [CartFault.OVERLAP]

    def test_run_after_the_other_is_well(self) -> None:
        marks = lived("a", 1.0, 3.0) + lived("a'", 3.0, 4.0)

        assert check_cart(marks, wave(1, "a") | wave(1, "a'", round_=2)) == []


class TestParallel:
    def test_more_at_once_than_may_is_found(self) -> None:
        marks = lived("a", 1.0, 4.0) + lived("b", 2.0, 4.0) + lived("c", 3.0, 4.0)

        found = check_cart(marks, wave(1, "a", "b", "c"), max_parallel=2)
        assert found == [CartFinding(CartFault.CROWDED, "3 at once")]
        assert check_cart(marks, wave(1, "a", "b", "c"), max_parallel=3) == []

    def test_runs_of_other_carts_are_left_aside(self) -> None:
        marks = lived("a", 1.0, 4.0) + lived("other", 2.0, 4.0)

        assert check_cart(marks, wave(1, "a"), max_parallel=1) == []
