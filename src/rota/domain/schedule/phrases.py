"""Building blocks of sentences: lists, ranges, amounts of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

_UNITS = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", timedelta(milliseconds=1)),
    ("microsecond", timedelta(microseconds=1)),
)


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def ranges(values: Sequence[int], name: Callable[[int], str] = str) -> str:
    """Ascending numbers by name, three or more neighbours as a range: `1 to 5, 8 and 9`."""
    words: list[str] = []
    for first, last in _runs(values):
        if last - first > 1:
            words.append(f"{name(first)} to {name(last)}")
        else:
            words += [name(value) for value in range(first, last + 1)]
    return listed(words)


def amount(duration: timedelta) -> str:
    """`10 seconds`, `1 hour 30 minutes`."""
    parts = []
    for unit, length in _UNITS:
        count, duration = divmod(duration, length)
        if count:
            parts.append(f"{count} {unit}" + ("s" if count > 1 else ""))
    return " ".join(parts)


def every(duration: timedelta) -> str:
    """`every 10 seconds`, `every hour`."""
    words = amount(duration)
    single = words.removeprefix("1 ")
    return f"every {words if ' ' in single else single}"


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = values[0]
    for value in values[1:]:
        if value != last + 1:
            yield first, last
            first = value
        last = value
    yield first, last
