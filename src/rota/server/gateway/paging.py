"""Lists in parts: an opaque cursor says where the next part begins."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from rota.api.answers import Answer, Page
from rota.domain.errors import Invalid

T = TypeVar("T")
A = TypeVar("A", bound=Answer)
Position = TypeVar("Position", str, int)

MAX_LIMIT = 1_000
MAX_INTEGER = 2**63 - 1  # what every store can compare
_MAX_CURSOR = 1_000

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="how many at most")]
Cursor = Annotated[
    str | None, Query(max_length=_MAX_CURSOR, description="`next_cursor` of the part before")
]


def encode_cursor(kind: str, position: str | int) -> str:
    """A cursor of one kind of list; it fits no other."""
    text = json.dumps([kind, position], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None, default: Position) -> Position:
    """Where the list goes on; `default` without a cursor."""
    if cursor is None:
        return default
    try:
        data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        given, position = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        given, position = None, None
    if given == kind and type(position) is type(default) and _is_usable(position):
        return position
    raise bad_cursor()


def bad_cursor() -> Invalid:
    return Invalid(
        "this cursor does not belong to this list",
        code="bad_cursor",
        hint="use `next_cursor` as it came, or leave it out to begin anew",
    )


def _is_usable(position: str | int) -> bool:
    if isinstance(position, int):
        return 0 <= position <= MAX_INTEGER
    return position.isprintable()  # lone surrogates are not


def page(
    found: Sequence[T], limit: int, answer: Callable[[T], A], cursor: Callable[[T], str]
) -> Page[A]:
    """A part of a list, made of one more than the part has room for, if there are more."""
    part = found[:limit]
    next_cursor = cursor(part[-1]) if len(found) > limit else None
    return Page(items=tuple(map(answer, part)), next_cursor=next_cursor)
