"""Instants as flags take them: the server reads them, on the clocks of the job that is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from cyclopts import Token


def _convert(_: type, tokens: Sequence[Token]) -> str:
    text = tokens[0].value
    if not text[:1].isdigit():
        raise ValueError(f'"{text}": write an ISO 8601 time, e.g. 2026-06-01T22:00+02:00')
    return text


Instant = Annotated[str, Parameter(converter=_convert, metavar="TIME")]
