"""Kinds of single values a job file has: how each is checked, described and put in a schema.

`check` reports to its position and returns `INVALID`, or returns the value as the document keeps
it: JSON-able and in the file's own vocabulary. Turning `"1h"` into a `timedelta` comes later.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from rota.domain.errors import did_you_mean, listed, shown
from rota.domain.jobfile.text import MAX_INTEGER, At
from rota.domain.quantities import PATTERN, format_duration, format_size, parse_duration, parse_size
from rota.domain.schedule.zones import load_zone

Schema = dict[str, object]

_NEVER = re.compile("[\0\ud800-\udfff]")
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_CONTROL = re.compile("[\x01-\x1f\x7f-\x9f\u2028\u2029]")


class Rejected:
    """The type of `INVALID`, which stands for a value that has been reported."""


INVALID: Final = Rejected()


class Kind(Protocol):
    """One kind of value."""

    @property
    def words(self) -> str:
        """Say what the value must be, for the end of "x must be …" and the reference page."""

    def check(self, value: object, at: At) -> object: ...

    def schema(self) -> Schema: ...


class Refused(ValueError):
    """Reason why a value is not of its kind; without a message, the kind's words say it."""

    def __init__(self, message: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Scalar(ABC):
    """Base of the kinds of single values."""

    @property
    @abstractmethod
    def words(self) -> str: ...

    @abstractmethod
    def accept(self, value: object, at: At) -> object:
        """Return the value as the document keeps it, or `Refused`."""

    @abstractmethod
    def schema(self) -> Schema: ...

    def check(self, value: object, at: At) -> object:
        try:
            return self.accept(value, at)
        except Refused as refused:
            message = str(refused) or f"{at.name} must be {self.words}, not {shown(value)}"
            at.refuse(message, refused.hint)
            return INVALID


@dataclass(frozen=True, slots=True)
class Text(Scalar):
    """Text with a limit; one line unless `lines`."""

    words: str = "text"
    max_length: int = 1_000
    min_length: int = 1
    lines: bool = False
    pattern: str = ""  # that the whole text must match
    takes_numbers: bool = False  # numbers and booleans are taken as they were typed

    def accept(self, value: object, at: At) -> object:
        text = self._text(value, at)
        if len(text) > self.max_length:
            raise Refused(f"{at.name} is longer than {self.max_length:,} characters")
        if len(text) < self.min_length:
            raise Refused(f"{at.name} must not be empty")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise Refused
        if found := _NEVER.search(text) or (None if self.lines else _CONTROL.search(text)):
            raise Refused(f"{at.name} must not contain the character U+{ord(found.group()):04X}")
        return text

    def _text(self, value: object, at: At) -> str:
        if isinstance(value, str):
            return value
        if not isinstance(value, bool | int | float):
            raise Refused
        typed = at.written or (str(value).lower() if isinstance(value, bool) else str(value))
        if not self.takes_numbers:
            raise Refused(hint=f'put it in quotes: "{typed[:40]}"')
        return typed

    def schema(self) -> Schema:
        limits: Schema = {"minLength": self.min_length} if self.min_length else {}
        limits |= {"maxLength": self.max_length}
        if self.pattern:
            limits |= {"pattern": f"^(?:{self.pattern})$"}
        kind = ["string", "number", "boolean"] if self.takes_numbers else "string"
        return {"type": kind, **limits}


@dataclass(frozen=True, slots=True)
class Flag(Scalar):
    words: str = "true or false"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, bool):
            return value
        word = value.lower() if isinstance(value, str) else ""
        meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(word)
        raise Refused(hint=f"write {meant}" if meant else "")

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Integer(Scalar):
    least: int = -MAX_INTEGER
    most: int = MAX_INTEGER

    @property
    def words(self) -> str:
        if (self.least, self.most) == (-MAX_INTEGER, MAX_INTEGER):
            return "a whole number"
        return f"a whole number from {self.least:,} to {self.most:,}"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            raise Refused(hint=f"write {value} without quotes")
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused
        if not self.least <= value <= self.most:
            raise Refused
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number(Scalar):
    words: str = "a number"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused
        if not math.isfinite(value) or (isinstance(value, int) and abs(value) > MAX_INTEGER):
            raise Refused(f"{at.name} is too large a number")
        return value

    def schema(self) -> Schema:
        return {"type": "number"}


@dataclass(frozen=True, slots=True)
class Share(Scalar):
    """A part of a whole, as a fraction or a percentage."""

    words: str = "a number from 0 to 1 or a percentage such as 20%"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise Refused
        try:
            share = parse_share(value)
        except ValueError as error:
            raise Refused from error
        if not 0 <= share <= 1:
            raise Refused
        return value

    def schema(self) -> Schema:
        number = {"type": "number", "minimum": 0, "maximum": 1}
        percentage = {"type": "string", "pattern": r"^(100|[0-9]{1,2}(\.[0-9]{1,6})?)%$"}
        return {"anyOf": [number, percentage]}


def parse_share(value: float | str) -> float:
    if not isinstance(value, str):
        return float(value)
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?%", value, re.ASCII):
        raise ValueError("not a percentage")
    return float(value[:-1]) / 100


@dataclass(frozen=True, slots=True)
class Choice(Scalar):
    """Choice of a few words; those in `later` are known but refused in this version."""

    options: type[StrEnum] | tuple[str, ...]
    later: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [str(option) for option in self.options]

    @property
    def words(self) -> str:
        return listed(self.names)

    def accept(self, value: object, at: At) -> object:
        if value in self.later:
            raise Refused(f"{at.name} {shown(value)} is not available in this version of Rota")
        if isinstance(value, str) and value in self.names:
            return value
        raise Refused(hint=did_you_mean(value, self.names) if isinstance(value, str) else "")

    def schema(self) -> Schema:
        return {"type": "string", "enum": self.names}


FIRST_YEAR = 1970
LAST_YEAR = 9998  # one short of the calendar's end, so that any zone's offset still fits


@dataclass(frozen=True, slots=True)
class Duration(Scalar):
    least: timedelta = timedelta(0)
    most: timedelta = timedelta(days=366)

    words: str = "a duration such as 30s or 1h30m"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise Refused
        if isinstance(value, str) and not value.isprintable():
            raise Refused
        try:
            duration = parse_duration(str(value))
        except ValueError as error:
            raise Refused(f"{at.name}: {error}") from error
        if not self.least <= duration <= self.most:
            limits = f"from {format_duration(self.least)} to {format_duration(self.most)}"
            raise Refused(f"{at.name} must be {limits}, not {shown(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 2, "maxLength": 64}


@dataclass(frozen=True, slots=True)
class Size(Scalar):
    least: int
    most: int

    words: str = "a size such as 100MiB"

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, str):
            raise Refused
        try:
            size = parse_size(value)
        except ValueError as error:
            raise Refused from error
        if not self.least <= size <= self.most:
            limits = f"from {format_size(self.least)} to {format_size(self.most)}"
            raise Refused(f"{at.name} must be {limits}, not {shown(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{PATTERN}$"}


@dataclass(frozen=True, slots=True)
class Instant(Scalar):
    """A time of day on a date; without an offset it is in the job's time zone."""

    words: str = "an ISO 8601 time such as 2026-01-01T00:00:00Z"

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, str):
            raise Refused
        try:
            instant = datetime.fromisoformat(value)
        except ValueError as error:
            raise Refused from error
        if not FIRST_YEAR <= instant.year <= LAST_YEAR:
            years = f"in the years {FIRST_YEAR} to {LAST_YEAR}"
            raise Refused(f"{at.name} must be {years}, not {shown(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 8, "maxLength": 40}


@dataclass(frozen=True, slots=True)
class Zone(Scalar):
    words: str = "the name of a time zone such as Europe/Berlin"

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, str):
            raise Refused
        try:
            load_zone(value)
        except ValueError as error:
            raise Refused(str(error)) from error
        return value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_+/-]{0,95}$"}
