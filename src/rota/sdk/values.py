"""Python values as JSON and back, by their annotations.

What JSON has, dataclasses, enums, dates and the like are known; Pydantic models are taken by
their own methods, without needing Pydantic.
"""

from __future__ import annotations

from typing import Any

import msgspec


def to_json(value: object) -> bytes:
    """A TypeError names what JSON cannot carry."""
    return msgspec.json.encode(value, enc_hook=_dump)


def from_json(text: str | bytes) -> Any:
    return msgspec.json.decode(text)


def to_plain(value: object) -> Any:
    """The value made of what JSON has."""
    return from_json(to_json(value))


def from_plain(value: object, annotation: Any) -> Any:
    """The value as its annotation says; as it is, where that says nothing."""
    if annotation in (Any, None, object):
        return value
    return msgspec.convert(value, annotation, dec_hook=_load)


def _dump(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} cannot be carried as JSON")
    return dump(mode="json")


def _load(kind: type, value: object) -> object:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"a {kind.__name__} cannot be made from JSON")
    return validate(value)
