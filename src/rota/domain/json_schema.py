"""JSON Schemas of plug-in types: which are taken, and what is wrong with a value under one.

It is the part of draft 2020-12 that describes parameters. A keyword that is not known here is
refused with the schema, not ignored: whoever wrote it relies on it. Schemas and values come from
strangers, so the work is bounded: texts are compared with patterns of `domain.patterns`, and a
check that takes too many steps ends with a problem.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rota.domain.errors import did_you_mean, listed, quoted, shown
from rota.domain.patterns import MAX_TEXT, PatternRefused, compiled
from rota.domain.run import why_not_portable

MAX_SCHEMA = 64 * 1024  # bytes as JSON
_MAX_STEPS = 500_000  # of one check
_VISIT = 10  # steps of one part of a schema, beside what it compares
_MAX_PROBLEMS = 20
_MOST_TOLD = 100  # words that are named, or compared with the one that was meant
_REF = "#/$defs/"

Path: TypeAlias = tuple[str | int, ...]
Schema: TypeAlias = Mapping[str, Any]


class SchemaRefused(ValueError):
    """Reason why a schema is not taken."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something in a value that its schema does not allow."""

    path: Path  # where it is; of what is missing, where it should be in
    message: str
    hint: str = ""
    is_key: bool = False  # it is about the name of a field, not about its value


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: _is_number(value) and float(value).is_integer(),  # type: ignore[arg-type]
    "number": lambda value: _is_number(value),
}
_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "null": "empty",
    "integer": "a whole number",
    "number": "a number",
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_types(values: list[object]) -> bool:
    return bool(values) and all(isinstance(v, str) and v in _TYPES for v in values)


# --- schemas

# Notes for people, which decide nothing.
_NOTES = ("$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated")
_IS_SOUND: Mapping[str, Callable[[object], bool]] = {
    "type": lambda v: _are_types(v if isinstance(v, list) else [v]),
    "enum": lambda v: isinstance(v, list) and bool(v),
    "const": lambda _: True,
    "required": _are_texts,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _is_count,
    ),
    "uniqueItems": lambda v: isinstance(v, bool),
    "pattern": lambda v: isinstance(v, str),
    "$ref": lambda v: isinstance(v, str),
}
_MAPS = ("properties", "$defs")  # of schemas, by name
_LISTS = ("anyOf", "oneOf", "allOf")
_NESTED = ("items", "additionalProperties", "not")


def checked_schema(schema: object) -> dict[str, Any]:
    """Return the schema of a mapping of parameters; `SchemaRefused` if it is not taken."""
    if not isinstance(schema, Mapping):
        raise SchemaRefused(f"it must be a mapping, not {shown(schema)}")
    if complaint := why_not_portable(schema):
        raise SchemaRefused(complaint)
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError) as error:
        raise SchemaRefused(f"it is not JSON: {error}") from error
    if len(text) > MAX_SCHEMA:
        raise SchemaRefused(f"it has more than {MAX_SCHEMA // 1024} KiB")
    plain: dict[str, Any] = json.loads(text)
    if plain and plain.get("type") != "object":
        raise SchemaRefused('parameters are a mapping: its "type" must be "object"')
    _check(plain, "", plain.get("$defs", {}))
    return plain


def _check(schema: object, at: str, definitions: object) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise SchemaRefused(f"{at or 'it'} must be a mapping, true or false")
    for name, value in schema.items():
        where = f"{at}/{name}"
        if name in _NOTES:
            continue
        if name in _MAPS:
            _check_all(value, where, definitions)
        elif name in _LISTS:
            if not isinstance(value, list) or not value:
                raise SchemaRefused(f"{where} must be a list of schemas")
            for number, each in enumerate(value):
                _check(each, f"{where}/{number}", definitions)
        elif name in _NESTED:
            _check(value, where, definitions)
        else:
            _check_keyword(name, value, where, definitions)


def _check_all(value: object, where: str, definitions: object) -> None:
    if not isinstance(value, Mapping):
        raise SchemaRefused(f"{where} must be a mapping of schemas")
    for name, each in value.items():
        _check(each, f"{where}/{name}", definitions)


def _check_keyword(name: str, value: object, where: str, definitions: object) -> None:
    is_sound = _IS_SOUND.get(name)
    if is_sound is None:
        known = (*_IS_SOUND, *_MAPS, *_LISTS, *_NESTED)
        hint = did_you_mean(name, known)
        raise SchemaRefused(
            f"{where} is not a keyword that is checked" + (f"; {hint}" * bool(hint))
        )
    if not is_sound(value):
        raise SchemaRefused(f"{where} cannot be {shown(value)}")
    if name == "pattern":
        _pattern(str(value), where)
    if name == "$ref":
        target = str(value).removeprefix(_REF)
        is_known = isinstance(definitions, Mapping) and target in definitions
        if not str(value).startswith(_REF) or not is_known:
            raise SchemaRefused(f"{where}: there is no {value}; it may name {_REF}NAME only")


def _pattern(text: str, where: str) -> None:
    if not text.startswith("^") or not text.endswith("$"):
        raise SchemaRefused(f"{where} must be of the whole text: write it as ^…$")
    try:
        compiled(text[1:-1])
    except PatternRefused as error:
        raise SchemaRefused(f"{where} cannot be used: {error}") from error


# --- values


def misfits(value: object, schema: Schema) -> list[Misfit]:
    """List what a schema that was checked does not allow in a value, the first 20."""
    check = _Check(schema.get("$defs", {}))
    try:
        found = check.run(value, schema, ())
        return [misfit for misfit, _ in zip(found, range(_MAX_PROBLEMS), strict=False)]
    except (_TooLong, RecursionError):
        return [Misfit((), "it takes too long to compare this with the schema of the type")]


class _TooLong(Exception):
    """A check takes more steps than it may."""


@dataclass(slots=True)
class _Check:
    definitions: Schema
    steps: int = field(default=0)

    def run(self, value: object, schema: object, path: Path) -> Iterator[Misfit]:
        self._spend(_VISIT)
        if schema is False:
            yield Misfit(path, f"{_named(path)} is not allowed", is_key=True)
        if not isinstance(schema, Mapping):
            return
        self._spend(_compared(value, schema))
        if "$ref" in schema:
            yield from self.run(value, self.definitions[schema["$ref"].removeprefix(_REF)], path)
        if (wanted := _other_type(value, schema)) is not None:
            yield Misfit(path, f"{_named(path)} must be {wanted}, not {shown(value)}")
            return
        yield from _of_words(value, schema, path)
        yield from _of_sizes(value, schema, path)
        if isinstance(value, Mapping):
            yield from self._of_mapping(value, schema, path)
        elif isinstance(value, list | tuple) and "items" in schema:
            for number, each in enumerate(value):
                yield from self.run(each, schema["items"], (*path, number))
        yield from self._of_several(value, schema, path)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MAX_STEPS:
            raise _TooLong

    def _of_mapping(
        self, value: Mapping[str, object], schema: Schema, path: Path
    ) -> Iterator[Misfit]:
        known: Schema = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                where = _named(path) if path else "parameters"
                yield Misfit(path, f'{where} has no "{name}"', is_key=True)
        rest = schema.get("additionalProperties", True)
        for name, each in value.items():
            below = (*path, name)
            if name in known:
                yield from self.run(each, known[name], below)
            elif rest is False:
                hint = _meant(name, list(known))
                hint = hint or (f"it may have {_all_of(list(known))}" if known else "")
                yield Misfit(below, f"{quoted(name)} is no parameter of the type", hint, True)
            else:
                yield from self.run(each, rest, below)

    def _of_several(self, value: object, schema: Schema, path: Path) -> Iterator[Misfit]:
        for each in schema.get("allOf", ()):
            yield from self.run(value, each, path)
        for name in ("anyOf", "oneOf"):
            if name not in schema:
                continue
            results = [list(self.run(value, each, path)) for each in schema[name]]
            fitting = sum(not found for found in results)
            if not fitting:
                yield min(results, key=len)[0]
            elif name == "oneOf" and fitting > 1:
                yield Misfit(path, f"{_named(path)} fits {fitting} of the forms, and may fit one")
        if "not" in schema and not list(self.run(value, schema["not"], path)):
            yield Misfit(path, f"{_named(path)} is not allowed to be {shown(value)}")


def _named(path: Path) -> str:
    """Return what messages call a value: by its own name."""
    if not path:
        return "parameters"
    last = path[-1]
    return f"entry {last + 1} of {_named(path[:-1])}" if isinstance(last, int) else last


def _other_type(value: object, schema: Schema) -> str | None:
    """Return what a value must be that is of another type; None: its type is right."""
    if "type" not in schema:
        return None
    wanted = schema["type"]
    names: Sequence[str] = [wanted] if isinstance(wanted, str) else wanted
    if any(_TYPES[name](value) for name in names):
        return None
    return " or ".join(_WORDS[name] for name in names)


def _of_words(value: object, schema: Schema, path: Path) -> Iterator[Misfit]:
    """Yield what is wrong with a value that may be one of a few, or has a pattern."""
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if allowed is not None and not any(_are_equal(value, each) for each in allowed):
        words = [each if isinstance(each, str) else json.dumps(each) for each in allowed]
        hint = _meant(value, words) if isinstance(value, str) else ""
        yield Misfit(path, f"{_named(path)} must be {_all_of(words)}, not {shown(value)}", hint)
    if "pattern" in schema and isinstance(value, str):
        if len(value) > MAX_TEXT:
            message = f"{_named(path)} has more than {MAX_TEXT:,} characters, and a pattern"
            yield Misfit(path, message)
        elif not compiled(schema["pattern"][1:-1]).matches(value):
            yield Misfit(path, f"{_named(path)} must match {schema['pattern']}, not {shown(value)}")


def _compared(value: object, schema: Schema) -> int:
    """Return how many words, names or entries are looked at in one part of a schema."""
    names = len(schema.get("required", ())) + len(schema.get("enum", ()))
    is_whole = isinstance(value, list | tuple | Mapping)
    return names + (len(value) if is_whole else 0)  # type: ignore[arg-type]


def _meant(word: str, known: Sequence[str]) -> str:
    return did_you_mean(word, known) if len(known) <= _MOST_TOLD else ""


def _all_of(words: Sequence[str]) -> str:
    if len(words) <= _MOST_TOLD:
        return listed(words)
    return f"one of {len(words):,}, such as {words[0]}"


def _are_equal(value: object, other: object) -> bool:
    """Return whether two values are the same JSON: 1 is 1.0, but not true."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return value == other


def _of_sizes(value: object, schema: Schema, path: Path) -> Iterator[Misfit]:
    name = _named(path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf):
            yield Misfit(path, f"{name} must be {_between(schema, 'minimum', 'maximum')}")
        low, high = (
            schema.get("exclusiveMinimum", -math.inf),
            schema.get("exclusiveMaximum", math.inf),
        )
        if not low < value < high:
            bounds = [f"above {low}"] * (low > -math.inf) + [f"below {high}"] * (high < math.inf)
            yield Misfit(path, f"{name} must be {' and '.join(bounds)}")
        return
    for kind, what, least, most in (
        (str, "characters", "minLength", "maxLength"),
        (list | tuple, "entries", "minItems", "maxItems"),
        (Mapping, "fields", "minProperties", "maxProperties"),
    ):
        if isinstance(value, kind):
            size = len(value)
            if not schema.get(least, 0) <= size <= schema.get(most, math.inf):
                bounds_ = _between(schema, least, most)
                yield Misfit(path, f"{name} must have {bounds_} {what}, not {size}")
    if schema.get("uniqueItems") and isinstance(value, list | tuple):
        texts = [json.dumps(each, sort_keys=True) for each in value]
        if len(set(texts)) < len(texts):
            yield Misfit(path, f"{name} has an entry twice")


def _between(schema: Schema, least: str, most: str) -> str:
    bounds = [f"at least {schema[least]}"] if least in schema else []
    bounds += [f"at most {schema[most]}"] if most in schema else []
    return " and ".join(bounds)
