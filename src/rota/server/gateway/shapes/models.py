"""What all shapes have in common."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict

from rota.domain.quantities import format_duration, parse_duration

T = TypeVar("T")


class Answer(BaseModel):
    """Something the server says; made of a value with the same attributes by `model_validate`."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Body(BaseModel):
    """Something a caller says: a key it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Listing(Answer, Generic[T]):
    """A part of a list."""

    items: list[T]
    next_cursor: str | None = None  # None: this is the last part


def _duration(text: str) -> str:
    return format_duration(parse_duration(text))


Duration = Annotated[str, AfterValidator(_duration)]
