"""Base of all answers, and the answer that reports an error.

A server always sends all fields. Defaults are for whoever reads: an older server does not send what
was added since, and fields that a newer server adds are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

import msgspec

T = TypeVar("T")

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
UNSENT = datetime(1970, 1, 1, tzinfo=UTC)  # an instant that every server of this version sends


def one_of(meaning: str, *values: str) -> msgspec.Meta:
    """Mark a text that has one of these values today; a newer server may send others."""
    return msgspec.Meta(
        description=f"{meaning} One of {', '.join(values)}; newer servers may send others.",
        extra_json_schema={"x-extensible-enum": list(values)},
    )


ChangeWord = Annotated[
    str, one_of("What saving does to a thing.", "new", "changed", "unchanged", "removed")
]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object of the API."""


class Page(Answer, Generic[T], frozen=True, kw_only=True):
    """A part of a list."""

    items: tuple[T, ...]
    next_cursor: str | None = None  # None: this is the last part

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


class Health(Answer, frozen=True, kw_only=True):
    status: Annotated[str, one_of("How the server is.", "ok", "ready")]


class Problem(Answer, frozen=True, kw_only=True):
    """One thing wrong with an input, or worth a look in it, at one place."""

    path: str = ""  # dotted path inside the document; "" = the whole
    line: int | None = None
    column: int | None = None
    message: str
    hint: str = ""
    warning: bool = False  # worth a look, but nothing is refused because of it

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.line, self.column) if part) or self.path
        text = f"{place}  {self.message}" if place else self.message
        return f"{text} — {self.hint}" if self.hint else text


class ProblemReport(Answer, frozen=True, kw_only=True):
    """Why a request was not done, and what to do about it."""

    type: str = ""  # a URN that names the kind of problem
    title: str = ""
    status: int = 0
    detail: str = ""
    hint: str = ""  # what to do next; "" when the detail says it all
    code: str = ""  # stable, for programs
    errors: tuple[Problem, ...] = ()
    trace_id: str = ""  # also in the server's log
