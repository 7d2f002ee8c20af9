"""Lengths of time as flags take them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from cyclopts import Token


def _convert(_: type, tokens: Sequence[Token]) -> timedelta:
    from rota.runtime.offline import parse_duration  # not for those who give no length of time

    return parse_duration(tokens[0].value)


Duration = Annotated[timedelta, Parameter(converter=_convert, metavar="TIME")]
