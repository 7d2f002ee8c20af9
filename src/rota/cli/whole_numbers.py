"""Whole numbers as flags take them; cyclopts alone would round others in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from cyclopts import Token


def _convert(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None


WholeNumber = Annotated[int, Parameter(converter=_convert, metavar="N")]
