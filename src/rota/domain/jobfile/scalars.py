"""What an unquoted scalar means in YAML 1.2's core schema: `yes`, `022` and dates stay harmless."""

from __future__ import annotations

import math
import re

from rota.domain.schedule.quoting import quoted

MAX_INTEGER = 2**63 - 1

NULL = re.compile(r"~|null|Null|NULL|")
BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
DECIMAL = re.compile(r"[-+]?[0-9]+")
PREFIXED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")

_SPECIAL_START = frozenset("~nNtTfF.+-0123456789")
_MAX_DIGITS = 20  # also keeps clear of Python's own limit on converting digits


class UnusableNumber(ValueError):
    """A scalar that is a number to YAML, but none that can be kept or sent as JSON."""

    hint = "put it in quotes if it is meant as text"


def resolve(text: str) -> bool | int | float | str | None:
    """The value of an unquoted scalar."""
    if text and text[0] not in _SPECIAL_START:
        return text
    if NULL.fullmatch(text):
        return None
    if BOOLEAN.fullmatch(text):
        return text[0] in "tT"
    return _resolve_number(text)


def _resolve_number(text: str) -> int | float | str:
    if DECIMAL.fullmatch(text):
        return _whole(text, 10)
    if PREFIXED.fullmatch(text):
        return _whole(text, 0)
    if NOT_FINITE.fullmatch(text):
        raise UnusableNumber(f"{quoted(text)} is not a number that can be stored")
    if FLOAT.fullmatch(text):
        return _fraction(text)
    return text


def _whole(text: str, base: int) -> int:
    number = int(text, base) if len(text) <= _MAX_DIGITS else MAX_INTEGER + 1
    if abs(number) > MAX_INTEGER:
        raise UnusableNumber(f"{quoted(text)} is too large a number")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise UnusableNumber(f"{quoted(text)} is too large a number")
    return number
