"""One field of a cron expression: its range, its names, and the values a term stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rota.domain.schedule.quoting import quoted

Hash = Callable[[str], float]  # field name → a number in [0, 1) that never changes for a job

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class Field:
    """What a field may hold."""

    name: str
    low: int
    high: int
    highest_value: int  # where `*` and an open step end; below `high` if two numbers mean the same
    highest_hash: int  # `H` stays at or below it, so that it exists in every month
    names: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.highest_value - self.low + 1

    @property
    def range_text(self) -> str:
        names = tuple(self.names)
        return f"{self.low}–{self.high}" + (f" or {names[0]}–{names[-1]}" if names else "")


SECOND = Field("second", 0, 59, 59, 59)
MINUTE = Field("minute", 0, 59, 59, 59)
HOUR = Field("hour", 0, 23, 23, 23)
DAY = Field("day", 1, 31, 31, 28)
MONTH = Field("month", 1, 12, 12, 12, {name: n for n, name in enumerate(MONTH_NAMES, 1)})
WEEKDAY = Field("weekday", 0, 7, 6, 6, {name: n for n, name in enumerate(WEEKDAY_NAMES)})


def field_values(field: Field, text: str, stable_hash: Hash) -> tuple[int, ...]:
    """The values a whole field stands for, ascending, each once."""
    terms = split_terms(field, text)
    return tuple(sorted({v for term in terms for v in term_values(field, term, stable_hash)}))


def split_terms(field: Field, text: str) -> list[str]:
    terms = text.split(",")
    if "" in terms:
        raise ValueError(f"{field.name} {quoted(text)} has an empty term")
    return terms


def term_values(field: Field, term: str, stable_hash: Hash) -> tuple[int, ...]:
    """The values of one term: `*`, `5`, `1-5`, `*/10`, `22-2`, `H`, `H(0-29)/10`."""
    body, slash, step_text = term.partition("/")
    step = _step(field, step_text) if slash else None
    if body.startswith("H"):
        return _hashed_values(field, body, step, stable_hash)
    first, last = _bounds(field, body, is_open=step is not None)
    if last < first:  # past the end and on from the beginning: 22-2, FRI-MON, NOV-FEB
        last += field.size
    # Folding into the field also makes weekday 7 a Sunday.
    values = range(first, last + 1, step or 1)
    return tuple(field.low + (value - field.low) % field.size for value in values)


def number(field: Field, text: str) -> int:
    """A number or name inside the field's range."""
    if text in field.names:
        return field.names[text]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{field.name} {quoted(text)} does not exist ({field.range_text})")
    if len(text) > 4 or not field.low <= int(text) <= field.high:
        shown = text if len(text) < 20 else quoted(text)
        raise ValueError(f"{field.name} {shown} does not exist ({field.range_text})")
    return int(text)


def _bounds(field: Field, body: str, *, is_open: bool) -> tuple[int, int]:
    if body == "*":
        return field.low, field.highest_value
    first_text, dash, last_text = body.partition("-")
    first = number(field, first_text)
    if dash:
        return first, number(field, last_text)
    return first, field.highest_value if is_open else first


def _step(field: Field, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise ValueError(f"{field.name} step {quoted(text)} is not a number")
    step = int(text)
    if step == 0:
        raise ValueError(f"{field.name} step 0 never moves on: the smallest step is 1")
    if step > field.high:
        raise ValueError(
            f"{field.name} step {step} is longer than the field ({field.range_text}):"
            " every so often regardless of the clock is an interval, such as 90m"
        )
    return step


def _hashed_values(field: Field, body: str, step: int | None, stable_hash: Hash) -> tuple[int, ...]:
    low, high = _hash_bounds(field, body)
    last_start = high if step is None else min(high, low + step - 1)
    start = low + int(stable_hash(field.name) * (last_start - low + 1))
    return (start,) if step is None else tuple(range(start, high + 1, step))


def _hash_bounds(field: Field, body: str) -> tuple[int, int]:
    if body == "H":
        return field.low, field.highest_hash
    inner = body[2:-1]
    if body != f"H({inner})" or "-" not in inner:
        raise ValueError(f"{field.name} {quoted(body)}: write H or H(first-last)")
    first_text, _, last_text = inner.partition("-")
    low, high = number(field, first_text), number(field, last_text)
    if low > high or high > field.highest_value:
        raise ValueError(f"{field.name} {quoted(body)}: the range of H must ascend")
    return low, high
