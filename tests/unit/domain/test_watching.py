"""The order in which a watcher is told of steps and of the lines that they printed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.run import StepReport
from rota.domain.watching import Place, StepCourse, ToldStep

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def step(name: str, result: str, first: int = 0, lines: int = 0) -> StepReport:
    return StepReport(name, result, started_at=NOON, first_line=first, lines=lines)


def in_short(told: ToldStep) -> str:
    return f"{told.step.name} {told.step.result}"


def up_to(course: StepCourse, line: int | None) -> list[str]:
    return [in_short(each) for each in course.up_to(line)]


def before(course: StepCourse, line: int, printing: int) -> list[str]:
    return [in_short(each) for each in course.before(line, printing)]


class TestCourse:
    def test_a_step_ends_once_its_last_line_was_told(self) -> None:
        course = StepCourse()
        course.learn_note(0, [step("a", "completed", 0, 2), step("b", "running", 2)])

        assert up_to(course, 0) == ["a running"]
        assert up_to(course, 1) == []
        assert up_to(course, 2) == ["a completed", "b running"]

    def test_each_thing_is_told_once(self) -> None:
        course = StepCourse()
        course.learn_note(0, [step("a", "completed")])
        first = up_to(course, 0)
        course.learn_note(0, [step("a", "completed")])

        assert (first, up_to(course, 0)) == (["a running", "a completed"], [])

    def test_a_line_proves_that_its_step_has_begun(self) -> None:
        course = StepCourse()
        course.learn_note(0, [step("a", "completed", 0, 5), step("b", "running", 5)])

        assert before(course, 3, 1) == ["a running", "b running"]

    def test_skipped_steps_only_end(self) -> None:
        course = StepCourse()
        course.learn_note(0, [StepReport("a", "skipped")])

        assert up_to(course, 0) == ["a skipped"]

    def test_steps_without_a_place_go_around_their_lines(self) -> None:
        course = StepCourse()
        course.learn_end([step("a", "completed"), step("b", "failed")])

        assert up_to(course, 9) == []
        assert before(course, 0, 1) == ["a running", "a completed", "b running"]
        assert up_to(course, None) == ["b failed"]

    def test_steps_in_one_another_end_whenever_they_do(self) -> None:
        course = StepCourse()
        course.learn_note(0, [step("outer", "running"), step("inner", "completed", 1, 2)])

        assert up_to(course, 3) == ["outer running", "inner running", "inner completed"]
        assert course.told == 0  # who comes back is told of the outer one again

    def test_all_before_the_place_was_told(self) -> None:
        course = StepCourse(told=1)
        course.learn_note(0, [step("a", "completed"), step("b", "completed")])

        assert up_to(course, 0) == ["b running", "b completed"]
        assert course.told == 2

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8),
        st.lists(st.integers(0, 30), max_size=10),
    )
    def test_whatever_is_looked_at_each_step_begins_once_before_it_ends_once(
        self, shapes: list[tuple[int, bool]], looks: list[int]
    ) -> None:
        course, line = StepCourse(), 0
        steps = []
        for number, (lines, is_skipped) in enumerate(shapes):
            named = str(number)
            steps.append(
                StepReport(named, "skipped", first_line=line)
                if is_skipped
                else step(named, "completed", line, lines)
            )
            line += 0 if is_skipped else lines
        told: list[str] = []
        for look in sorted(looks):
            course.learn_note(0, steps)
            told += up_to(course, look)
        course.learn_end(steps)
        told += up_to(course, None)

        expected = []
        for number, (_, is_skipped) in enumerate(shapes):
            expected += [f"{number} skipped"] if is_skipped else []
            expected += [] if is_skipped else [f"{number} running", f"{number} completed"]
        assert told == expected
        assert not course.has_untold


class TestPlace:
    @given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
    def test_is_read_as_it_was_written(self, attempt: int, line: int, step: int) -> None:
        place = Place(attempt, line, step)

        assert Place.parse(str(place)) == place

    @pytest.mark.parametrize(
        "text", ["", "1", "1.2", "1.2.3.4", "0.1.1", "1.-1.1", "1.².1", "a.b.c", "1.2." + "9" * 40]
    )
    def test_anything_else_is_none(self, text: str) -> None:
        with pytest.raises(ValueError) as refused:  # noqa: PT011 (it says what was no place)
            Place.parse(text)

        assert str(refused.value) == text
