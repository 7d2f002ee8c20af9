from __future__ import annotations

import pytest

from rota.domain.errors import Invalid
from rota.domain.jobfile import parse_inputs
from rota.domain.spec import JobSpec
from tests.unit.domain.jobfile.jobfiles import by_message, errors_of, spec_of

SPEC = spec_of(
    inputs={
        "target": {"default": "all"},
        "count": {"type": "integer", "help": "How many hosts"},
        "ratio": {"type": "number", "default": 0.5},
        "force": {"type": "boolean", "default": False},
    }
)


def errors(given: dict[str, object], spec: JobSpec = SPEC) -> list[str]:
    with pytest.raises(Invalid) as caught:
        parse_inputs(spec, given)
    return [str(problem) for problem in caught.value.problems]


def test_inputs_not_given_take_their_defaults() -> None:
    assert parse_inputs(SPEC, {"count": 3}) == {
        "target": "all",
        "count": 3,
        "ratio": 0.5,
        "force": False,
    }


def test_text_of_a_flag_is_read_as_the_declared_type() -> None:
    given = {"target": "7", "count": "3", "ratio": "1", "force": "true"}

    values = parse_inputs(SPEC, given)

    assert values == {"target": "7", "count": 3, "ratio": 1, "force": True}
    assert values["force"] is True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, 'count  input "count" must be given — How many hosts'),
        ({"count": None}, 'input "count" must be given'),
        ({"count": "three"}, 'input "count" must be a whole number, not "three"'),
        ({"count": "3.5"}, "must be a whole number"),
        ({"count": 3.0}, "must be a whole number, not 3.0"),
        ({"count": True}, "must be a whole number, not true"),
        ({"count": 2**63}, "count must be text, a number, true or false"),
        ({"count": "9" * 100}, "must be a whole number"),
        ({"count": [1]}, "count must be text, a number, true or false, not a list"),
        ({"count": 1, "ratio": float("nan")}, "ratio must be text, a number"),
        ({"count": 1, "force": "yes"}, 'input "force" must be true or false, not "yes"'),
        ({"count": 1, "target": 5}, 'input "target" must be text, not 5'),
        ({"count": 1, "target": "a\0"}, "must not contain the character U+0000"),
        ({"count": 1, "target": "x" * 65_537}, "target is longer than 65,536 characters"),
        ({"count": 1, "tarjet": "x"}, 'job tidy has no input "tarjet" — did you mean "target"?'),
    ],
    ids=by_message,
)
def test_wrong_input_is_refused(given: dict[str, object], message: str) -> None:
    (error,) = errors(given)

    assert message in error


CHOSEN = spec_of(
    inputs={
        "size": {"type": "choice", "options": ["small", "large", 3], "default": "small"},
        "day": {"pattern": "[0-9]{4}-[0-9]{2}", "default": "2026-01", "help": "a month"},
    }
)


def test_choices_and_texts_that_match_are_taken() -> None:
    assert parse_inputs(CHOSEN, {}) == {"size": "small", "day": "2026-01"}
    assert parse_inputs(CHOSEN, {"size": "3", "day": "1999-12"}) == {"size": "3", "day": "1999-12"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"size": "larg"},
            'size  input "size" must be "small", "large" or "3", not "larg" — did you mean '
            '"large"?',
        ),
        ({"size": 3}, 'input "size" must be "small", "large" or "3", not 3'),
        (
            {"day": "2026-1"},
            'day  input "day" must match [0-9]{4}-[0-9]{2}, not "2026-1" — a month',
        ),
        ({"day": "2026-01 "}, "must match"),
        ({"day": "9" * 1_001}, 'input "day" is longer than the 1,000 characters'),
    ],
    ids=by_message,
)
def test_what_is_no_choice_or_does_not_match_is_refused(
    given: dict[str, object], message: str
) -> None:
    (error,) = errors(given, CHOSEN)

    assert message in error


def test_of_many_options_only_some_are_told() -> None:
    options = [f"host-{number}" for number in range(40)]
    spec = spec_of(inputs={"host": {"type": "choice", "options": options}})

    (error,) = errors({"host": "x"}, spec)

    assert '"host-9" and 30 more, not "x"' in error


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"type": "choice"}, 'input "x" has no options — write options: [FIRST, SECOND]'),
        ({"options": ["a"]}, '"options" need type: choice — add type: choice'),
        ({"type": "choice", "options": []}, "options must have 1 to 200 entries"),
        ({"type": "choice", "options": "a"}, "options must be a list"),
        ({"type": "choice", "options": ["a", "a"]}, 'option "a" is already'),
        (
            {"type": "choice", "options": ["a", "b"], "default": "c"},
            'default must be "a" or "b", not "c"',
        ),
        ({"type": "integer", "pattern": "1"}, '"pattern" does not go with type integer'),
        ({"pattern": "(a"}, 'the pattern cannot be used: a "(" is not closed'),
        ({"pattern": "[a-z]+", "default": "A"}, 'default must match [a-z]+, not "A"'),
    ],
    ids=by_message,
)
def test_wrong_declarations_are_refused(declared: dict[str, object], message: str) -> None:
    (error,) = errors_of(inputs={"x": declared})

    assert message in error


def test_all_wrong_inputs_are_reported_together() -> None:
    assert len(errors({"ratio": "x", "force": "x", "other": 1})) == 4


def test_inputs_are_bounded_together() -> None:
    spec = spec_of(inputs={f"input_{number}": {} for number in range(3)})

    (error,) = errors(dict.fromkeys(spec.inputs, "x" * 60_000), spec)

    assert "more than 128 KiB" in error
