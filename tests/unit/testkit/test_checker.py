from __future__ import annotations

from testkit.checker import Fault, Finding, check, most_at_once, most_in_use
from testkit.evidence import Event, Mark

SIZES = {"large": 8, "small": 2}


def lived(
    run: str,
    attempt: int,
    start: float,
    *beats: float,
    end: float | None = None,
    job: str = "job",
) -> list[Mark]:
    """The marks of one attempt."""
    times = [(Event.START, start), *((Event.BEAT, at) for at in beats)]
    if end is not None:
        times.append((Event.END, end))
    return [Mark(job, run, attempt, event, at) for event, at in times]


def faults(findings: list[Finding]) -> list[tuple[Fault, str]]:
    return [(finding.fault, finding.run) for finding in findings]


class TestCheck:
    def test_attempts_one_after_another_are_well(self) -> None:
        marks = lived("a", 1, 1.0, 1.5) + lived("a", 2, 2.0, end=2.5) + lived("b", 1, 1.0, end=9.0)

        assert check(marks, ["a", "b"]) == []

    def test_second_attempt_during_the_first_is_an_overlap(self) -> None:
        marks = lived("a", 1, 1.0, 3.0) + lived("a", 2, 2.0, end=4.0)

        assert faults(check(marks, ["a"])) == [(Fault.OVERLAP, "a")]

    def test_attempt_that_began_twice_is_repeated(self) -> None:
        marks = lived("a", 1, 1.0, end=2.0) + lived("a", 1, 3.0)

        assert faults(check(marks, ["a"])) == [(Fault.REPEATED_ATTEMPT, "a")]

    def test_first_attempt_after_the_second_is_stale(self) -> None:
        marks = lived("a", 2, 1.0, end=2.0) + lived("a", 1, 3.0)

        assert faults(check(marks, ["a"])) == [(Fault.STALE_ATTEMPT, "a")]

    def test_run_that_ended_well_twice_is_found(self) -> None:
        marks = lived("a", 1, 1.0, end=2.0) + lived("a", 2, 3.0, end=4.0)

        assert faults(check(marks, ["a"])) == [(Fault.REPEATED_END, "a")]
        assert check(marks, ["a"], lost=["a"]) == []

    def test_run_without_an_end_is_missing(self) -> None:
        assert faults(check(lived("a", 1, 1.0), ["a", "b"])) == [
            (Fault.MISSING, "a"),
            (Fault.MISSING, "b"),
        ]

    def test_run_that_nobody_asked_for_is_extra(self) -> None:
        marks = lived("a", 1, 1.0, end=2.0) + lived("b", 1, 1.0, end=2.0)

        assert faults(check(marks, ["a"])) == [(Fault.EXTRA, "b")]

    def test_optional_run_may_lack_its_end_or_be_absent(self) -> None:
        assert check(lived("a", 1, 1.0), [], optional=["a", "b"]) == []


class TestMostAtOnce:
    def test_attempts_that_live_together_are_counted(self) -> None:
        marks = lived("a", 1, 1.0, end=4.0) + lived("b", 1, 2.0, end=5.0) + lived("c", 1, 6.0)

        assert most_at_once(marks) == 2

    def test_one_that_begins_as_another_ends_is_not_at_once(self) -> None:
        marks = lived("a", 1, 1.0, end=2.0) + lived("b", 1, 2.0, end=3.0)

        assert most_at_once(marks) == 1

    def test_nothing_is_none_at_once(self) -> None:
        assert most_at_once([]) == 0


class TestMostInUse:
    def test_sizes_of_attempts_that_live_together_add_up(self) -> None:
        marks = (
            lived("a", 1, 1.0, end=4.0, job="large")
            + lived("b", 1, 2.0, end=5.0, job="small")
            + lived("c", 1, 3.0, end=6.0, job="free")
            + lived("d", 1, 4.5, end=6.0, job="small")
        )

        assert most_in_use(marks, SIZES) == 10

    def test_attempt_that_died_had_its_part_until_its_last_word(self) -> None:
        marks = lived("a", 1, 1.0, 2.0, job="large") + lived("a", 2, 2.5, end=4.0, job="large")

        assert most_in_use(marks, SIZES) == 8
