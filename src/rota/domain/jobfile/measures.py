"""The kinds of values that measure: durations, sizes, instants and zones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.durations import format_duration, parse_duration
from rota.domain.jobfile.kinds import Refused, Scalar, Schema
from rota.domain.jobfile.report import At
from rota.domain.jobfile.wording import shown
from rota.domain.schedule.zones import load_zone
from rota.domain.sizes import PATTERN, format_size, parse_size

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
