"""JSON Schemas of plug-in types: which are taken, and what does not fit them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rota.domain.json_schema import SchemaRefused, checked_schema, misfits

TICKET = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "queue": {"enum": ["OPS", "DEV"]},
        "urgent": {"type": "boolean", "default": False},
        "people": {"type": "array", "items": {"$ref": "#/$defs/person"}, "maxItems": 2},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
    },
    "required": ["queue"],
    "additionalProperties": False,
    "$defs": {"person": {"type": "object", "required": ["name"]}},
}


def of_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_what_fits_has_no_fault() -> None:
    schema = checked_schema(TICKET)
    value = {"queue": "OPS", "urgent": True, "people": [{"name": "a"}], "days": 2.0, "code": "AB-1"}

    assert misfits(value, schema) == []


@pytest.mark.parametrize(
    ("value", "path", "message", "hint"),
    [
        ({}, (), 'parameters has no "queue"', ""),
        (
            {"queue": "OPSS"},
            ("queue",),
            'queue must be OPS or DEV, not "OPSS"',
            'did you mean "OPS"?',
        ),
        (
            {"queue": "OPS", "urgnt": True},
            ("urgnt",),
            '"urgnt" is no parameter of the type',
            'did you mean "urgent"?',
        ),
        (
            {"queue": "OPS", "urgent": 1},
            ("urgent",),
            "urgent must be true or false, not 1",
            "",
        ),
        (
            {"queue": "OPS", "people": [{"name": "a"}, {}]},
            ("people", 1),
            'entry 2 of people has no "name"',
            "",
        ),
        (
            {"queue": "OPS", "people": [{"name": "a"}] * 3},
            ("people",),
            "people must have at most 2 entries, not 3",
            "",
        ),
        ({"queue": "OPS", "days": 31}, ("days",), "days must be at least 1 and at most 30", ""),
        ({"queue": "OPS", "days": True}, ("days",), "days must be a whole number, not true", ""),
        (
            {"queue": "OPS", "code": "ab-1"},
            ("code",),
            'code must match ^[A-Z]{2}-[0-9]+$, not "ab-1"',
            "",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(
    value: dict[str, Any], path: tuple[str | int, ...], message: str, hint: str
) -> None:
    [misfit] = misfits(value, checked_schema(TICKET))

    assert (misfit.path, misfit.message, misfit.hint) == (path, message, hint)


@pytest.mark.parametrize(
    ("schema", "fitting", "unfitting"),
    [
        ({"type": ["string", "null"]}, None, 1),
        ({"const": 1}, 1.0, True),
        ({"enum": [True]}, True, 1),
        ({"exclusiveMinimum": 0}, 0.5, 0),
        ({"exclusiveMaximum": 1}, 0.5, 1),
        ({"minLength": 2, "maxLength": 3}, "ab", "a"),
        ({"minItems": 1, "uniqueItems": True}, [1, 2], [1, 1]),
        ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1, 1.5),
        ({"oneOf": [{"minimum": 0}, {"minimum": 5}]}, 3, 6),
        ({"allOf": [{"minimum": 0}, {"maximum": 5}]}, 3, 6),
        ({"not": {"type": "string"}}, 1, "a"),
        ({"additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "b"}),
        (False, ..., 1),
    ],
)
def test_keywords_decide(schema: Any, fitting: Any, unfitting: Any) -> None:
    checked = checked_schema(of_object(it=schema))

    assert fitting is ... or misfits({"it": fitting}, checked) == []
    assert len(misfits({"it": unfitting}, checked)) == 1


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "it must be a mapping"),
        ({"type": "array"}, 'its "type" must be "object"'),
        (of_object(it={"requird": []}), 'did you mean "required"?'),
        ({"type": "object", "patternProperties": {}}, "is not a keyword that is checked"),
        (of_object(it={"type": "int"}), "/properties/it/type cannot be"),
        (of_object(it={"type": {"x": 1}}), "/properties/it/type cannot be"),
        (of_object(it={"type": [["string"]]}), "/properties/it/type cannot be"),
        (of_object(it={"minimum": "1"}), "/properties/it/minimum cannot be"),
        (of_object(it={"pattern": "a"}), "must be of the whole text"),
        (of_object(it={"pattern": r"^(a)\1$"}), "cannot be used"),
        (of_object(it={"$ref": "#/$defs/none"}), "there is no #/$defs/none"),
        (of_object(it={"$ref": "https://example.org/schema"}), "may name #/$defs/NAME only"),
        (of_object(it={"anyOf": []}), "must be a list of schemas"),
        (of_object(it=3), "must be a mapping, true or false"),
        ({"type": "object", "description": "x" * 70_000}, "more than 64 KiB"),
        (of_object(it={"default": float("inf")}), "not finite"),
    ],
)
def test_a_schema_that_could_not_be_kept_to_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        checked_schema(schema)

    assert reason in str(refused.value)


def test_no_schema_allows_everything() -> None:
    assert misfits({"a": [1, {"b": None}]}, checked_schema({})) == []


def test_a_check_without_end_ends() -> None:
    looping = {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    doubling: dict[str, Any] = {"type": "object", "$defs": {"d0": {"type": "object"}}}
    for depth in range(1, 40):
        below = {"$ref": f"#/$defs/d{depth - 1}"}
        doubling["$defs"][f"d{depth}"] = {"allOf": [below, below]}
    doubling["$ref"] = "#/$defs/d39"

    for schema in (looping, doubling):
        [misfit] = misfits({}, checked_schema(schema))
        assert "it takes too long" in misfit.message


def test_only_the_first_faults_are_told() -> None:
    schema = checked_schema({"type": "object", "additionalProperties": False})

    assert len(misfits({f"p{number}": 1 for number in range(50)}, schema)) == 20


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"anyOf": [{"required": [f"n{n}" for n in range(5_000)]}, True]}, {}),
        ({"anyOf": [{"enum": [f"word-{n}" for n in range(3_000)]}, {"type": "string"}]}, "words"),
    ],
)
def test_a_long_schema_and_a_long_value_together_take_no_long_time(part: Any, value: Any) -> None:
    schema = checked_schema(of_object(list={"type": "array", "items": part}))
    began = time.process_time()

    [misfit] = misfits({"list": [value] * 10_000}, schema)

    assert misfit.message.startswith("it takes too long")
    assert time.process_time() - began < 5


def test_of_many_words_a_few_are_named() -> None:
    schema = checked_schema(of_object(it={"enum": [f"word-{n}" for n in range(3_000)]}))

    [misfit] = misfits({"it": "wrd-7"}, schema)

    assert misfit.message == 'it must be one of 3,000, such as word-0, not "wrd-7"'
