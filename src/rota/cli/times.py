"""Instants and lengths of time as tables and transcripts show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def now() -> datetime:
    """By the reader's clock: it decides nothing, it only makes "3 m ago" true where it is read."""
    return datetime.now(UTC)  # noqa: TID251 (see above)


def length(seconds: float) -> str:
    """`340 ms`, `12.0 s`, `14 m 02 s`, `5 h 12 m`: two units at most."""
    if seconds < 0.0995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    index = next(index for index, (_, size) in enumerate(_UNITS) if rest >= size)
    (unit, size), (smaller_unit, smaller) = _UNITS[index], _UNITS[index + 1]
    return f"{rest // size} {unit} {rest % size // smaller:02} {smaller_unit}"


def relative(at: datetime, present: datetime) -> str:
    """`in 5 h 12 m`, `3.0 s ago`."""
    seconds = (at - present) / timedelta(seconds=1)
    return f"in {length(seconds)}" if seconds >= 0 else f"{length(-seconds)} ago"


def absolute(at: datetime) -> str:
    return local(at.astimezone(UTC))


def moment(at: datetime | None, present: datetime) -> str:
    """Both forms, in UTC; the date only where it is not today's."""
    return "–" if at is None else due(at.astimezone(UTC), present)


def due(at: datetime | None, present: datetime) -> str:
    """The same on the clocks of the schedule's zone, whose offset a due time has."""
    if at is None:
        return "–"
    is_today = at.date() == present.astimezone(at.tzinfo).date()
    stamp = f"{at:%H:%M:%S} {_offset(at)}" if is_today else local(at)
    return f"{relative(at, present)} · {stamp}"


def local(at: datetime) -> str:
    """`2027-03-28 03:00:00 +02:00`, by its own offset."""
    return f"{at:%Y-%m-%d %H:%M:%S} {_offset(at)}"


def _offset(at: datetime) -> str:
    return at.isoformat()[-6:] if at.utcoffset() else "UTC"
