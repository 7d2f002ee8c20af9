"""Instants as flags take them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from cyclopts import Token


def _convert(_: type, tokens: Sequence[Token]) -> datetime:
    text = tokens[0].value
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        message = f'"{text}": write an ISO 8601 time, e.g. 2026-06-01T22:00+02:00'
        raise ValueError(message)
    return instant


Instant = Annotated[datetime, Parameter(converter=_convert, metavar="TIME")]
