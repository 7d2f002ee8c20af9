"""Lengths of time and amounts of bytes as people write them.

`30s`, `1h30m`, ISO 8601 `PT1H30M`, in words `1 hour 30 minutes`; `100MiB`, `64KB`, `512B`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

_MICROSECOND = timedelta(microseconds=1)
_MICROS = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
}
_MAX_LENGTH = 64
_LONGEST = timedelta(days=36_525)  # a century: past it a duration is a typing error

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PARTS = {unit: rf"(?:(?P<{unit}>{_NUMBER})\s*{unit}(?![a-z]))?" for unit in _MICROS}
_PLAIN = re.compile(r"\s*".join(_PARTS.values()), re.ASCII)
_ISO = re.compile(
    rf"P(?:(?P<w>{_NUMBER})W)?(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?",
    re.ASCII,
)
_ISO_CALENDAR = re.compile(rf"P[^T]*{_NUMBER}[YM]", re.ASCII)
_BARE_NUMBER = re.compile(_NUMBER, re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Parse to the microsecond, never negative; a ValueError says what is wrong and what fits."""
    stripped = text.strip()
    if len(stripped) > _MAX_LENGTH:
        raise ValueError(f"a duration has at most {_MAX_LENGTH} characters")
    # Upper case makes ASCII letters of others, such as the s of "PT1ſ".
    plain = stripped if stripped.isascii() else ""
    match = _PLAIN.fullmatch(plain.lower()) or _ISO.fullmatch(plain.upper())
    parts = match.groupdict() if match else {}
    amounts = {unit: Decimal(number) for unit, number in parts.items() if number}
    if not amounts:
        raise ValueError(_complaint(text, stripped))
    return _total(text, amounts)


def format_duration(duration: timedelta) -> str:
    """Format in the shortest form that `parse_duration` reads back unchanged: `1h30m`, `200ms`."""
    micros = duration // _MICROSECOND
    if micros < 0:
        return "-" + format_duration(-duration)
    if micros == 0:
        return "0s"
    if micros < _MICROS["s"]:
        return f"{Decimal(micros) / _MICROS['ms']:f}ms"
    text = ""
    for unit in ("d", "h", "m"):
        count, micros = divmod(micros, _MICROS[unit])
        text += f"{count}{unit}" if count else ""
    return text + (f"{Decimal(micros) / _MICROS['s']:f}s" if micros else "")


def _total(text: str, amounts: dict[str, Decimal]) -> timedelta:
    micros = sum(amount * _MICROS[unit] for unit, amount in amounts.items())
    if micros != int(micros):
        raise ValueError(f'"{text}" is finer than a microsecond')
    if micros > _LONGEST // _MICROSECOND:
        raise ValueError(f'"{text}" is longer than a hundred years')
    return timedelta(microseconds=int(micros))


def _complaint(text: str, stripped: str) -> str:
    if not stripped:
        return "a duration is empty: write 30s, 1h30m or PT1H30M"
    if stripped.startswith("-"):
        return f'"{text}" is negative: a duration runs forward'
    if _BARE_NUMBER.fullmatch(stripped):
        return f'"{text}" has no unit: write {stripped}s for seconds or {stripped}m for minutes'
    if _ISO_CALENDAR.match(stripped.upper()):
        return f'"{text}" has years or months, which have no fixed length: write days'
    return f'"{text}" is not a duration: write 30s, 1h30m, 200ms or PT1H30M'


_UNITS = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
PATTERN = r"[0-9]{1,15}(\.[0-9]{1,6})? ?([kKmMgGtT][iI]?)?[bB]"
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([KMGT]?I?B)", re.ASCII)


def parse_size(text: str) -> int:
    """Parse whole bytes; a ValueError when the text is not a size."""
    match = _SIZE.fullmatch(text.strip().upper())
    if not match or match[2] not in _UNITS:
        raise ValueError("not a size: write 512KiB, 100MiB or 2GB")
    return int(float(match[1]) * _UNITS[match[2]])


def format_size(size: int) -> str:
    """Format in the largest binary unit that divides the size: `100MiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit.upper()] == 0:
            return f"{size // _UNITS[unit.upper()]}{unit}"
    return f"{size}B"


_NAMED_UNITS = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", timedelta(milliseconds=1)),
    ("microsecond", timedelta(microseconds=1)),
)
_SHORT_UNITS = {
    "w": "week",
    "d": "day",
    "h": "hour hr",
    "m": "minute min",
    "s": "second sec",
    "ms": "millisecond",
}
_SHORT = {word: short for short, words in _SHORT_UNITS.items() for word in words.split()}
UNIT_WORDS = rf"(?:{'|'.join(_SHORT)}|microsecond)s?"
_WORDED = re.compile(rf"(?<![a-z])(?:({'|'.join(_SHORT)})s?)\b", re.ASCII)
_BARE_UNIT = re.compile(rf"(?:{'|'.join(_SHORT)})", re.ASCII)
_MICROSECONDS = re.compile(r"(.*?)([0-9]{1,3})\s*microseconds?", re.ASCII)


def amount(duration: timedelta) -> str:
    """Format in words: `10 seconds`, `1 hour 30 minutes`."""
    parts = []
    for unit, length in _NAMED_UNITS:
        count, duration = divmod(duration, length)
        if count:
            parts.append(f"{count} {unit}" + ("s" if count > 1 else ""))
    return " ".join(parts)


def read_amount(text: str) -> timedelta:
    """Parse what `amount` writes, and what `parse_duration` reads; `hour` is one hour.

    A ValueError says what is wrong.
    """
    plain = text.strip().lower() if text.isascii() else text
    if _BARE_UNIT.fullmatch(plain):
        plain = f"1 {plain}"
    finest = timedelta(0)
    if match := _MICROSECONDS.fullmatch(plain):
        plain, finest = match[1] or "0s", timedelta(microseconds=int(match[2]))
    short = _WORDED.sub(lambda unit: _SHORT[unit[1]], plain)
    # Nothing in words: the complaint shall quote what was written.
    return parse_duration(text if short == plain and not finest else short) + finest
