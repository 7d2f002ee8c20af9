"""What the end of a run hands on."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.following import EndedRun, follow_words, is_followed, values_of
from rota.domain.jobfile.rules import parse_handed
from rota.domain.spec import Follow, Input, InputType, When
from rota.domain.states import FINAL_STATES, RunState

OUTPUTS = {"rows": 3, "name": "orders", "a.b": True, "list": [1, "ä"], "nothing": None}
TEXT = Input()


def handed(source: str, outputs: Any = OUTPUTS, declared: Input = TEXT, **fields: Any) -> Any:
    run = EndedRun("r_1", "extract", RunState.TIMED_OUT, outputs, **fields)
    values = values_of(Follow("extract", gives={"x": source}), run)
    return parse_handed({"x": declared}, values)["x"]


def refusal(source: str, outputs: Any = OUTPUTS, declared: Input = TEXT) -> str:
    with pytest.raises(Invalid) as caught:
        handed(source, outputs, declared)
    [problem] = caught.value.problems
    return problem.message


@pytest.mark.parametrize(
    ("when", "states"),
    [
        (When.COMPLETED, {"COMPLETED"}),
        (When.FAILED, {"FAILED", "TIMED_OUT"}),
        (When.ENDED, {"COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED"}),
    ],
)
def test_what_never_ran_is_followed_by_nothing(when: When, states: set[str]) -> None:
    assert {state for state in FINAL_STATES if is_followed(when, state)} == states


def test_follows_are_told_in_words() -> None:
    words = [follow_words(Follow("import", when)) for when in When]

    assert words == ["import", "a failed import", "any end of import"]


@pytest.mark.parametrize(
    ("source", "kind", "value"),
    [
        ("outputs.name", InputType.STRING, "orders"),
        ("outputs.rows", InputType.INTEGER, 3),
        ("outputs.rows", InputType.STRING, "3"),
        ("outputs.a.b", InputType.BOOLEAN, True),
        ("outputs.a.b", InputType.STRING, "true"),
        ("outputs.list", InputType.STRING, '[1,"ä"]'),
        ("run", InputType.STRING, "r_1"),
        ("job", InputType.STRING, "extract"),
        ("state", InputType.STRING, "timed_out"),
    ],
)
def test_values_are_handed_on_whole(source: str, kind: InputType, value: object) -> None:
    assert handed(source, declared=Input(kind)) == value


def test_outputs_as_a_whole_are_json_or_the_value_that_they_are() -> None:
    assert handed("outputs", {"a": [1]}) == '{"a":[1]}'
    assert handed("outputs", 7, Input(InputType.INTEGER)) == 7


def test_text_of_outputs_is_read_as_the_declared_type() -> None:
    assert handed("outputs.n", {"n": "12"}, Input(InputType.INTEGER)) == 12


@pytest.mark.parametrize(
    ("source", "outputs", "kind", "message"),
    [
        (
            "outputs.row",
            OUTPUTS,
            "string",
            '"row" is not there in the outputs of r_1 of extract (d',
        ),
        ("outputs.nothing", OUTPUTS, "string", '"nothing" is null in the outputs of r_1'),
        ("outputs.rows", None, "string", "r_1 of extract left no outputs"),
        ("outputs", None, "string", "r_1 of extract left no outputs"),
        ("outputs.rows", 7, "string", "the outputs of r_1 of extract are a value without names"),
        ("outputs.name", OUTPUTS, "integer", 'input "x" must be a whole number, not "orders"'),
        ("outputs.list", OUTPUTS, "integer", "x must be text, a number, true or false, not a list"),
        ("artifacts.out.csv", OUTPUTS, "string", 'r_1 of extract kept no artifact "out.csv"'),
    ],
)
def test_what_is_not_there_or_of_another_type_is_refused(
    source: str, outputs: Any, kind: str, message: str
) -> None:
    assert message in refusal(source, outputs, Input(InputType(kind)))


def test_choices_and_patterns_count_for_what_is_handed_on() -> None:
    choice = Input(InputType.CHOICE, options=("users",))

    assert 'must be "users", not "orders"' in refusal("outputs.name", declared=choice)
    assert "must match [0-9]+" in refusal("outputs.name", declared=Input(pattern="[0-9]+"))


def test_what_is_too_long_for_an_input_is_refused() -> None:
    assert "longer than 65,536 characters" in refusal("outputs.x", {"x": "y" * 70_000})


def test_everything_that_lacks_is_told_together() -> None:
    run = EndedRun("r_1", "extract", RunState.FAILED)
    follow = Follow("extract", gives={"a": "outputs.a", "b": "outputs.b", "c": "run"})

    with pytest.raises(Invalid) as caught:
        values_of(follow, run)

    assert [problem.path for problem in caught.value.problems] == ["a", "b"]
