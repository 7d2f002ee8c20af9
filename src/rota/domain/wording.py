"""How values that a user wrote appear in messages, and the valid name nearest to a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 60


def quoted(text: str) -> str:
    """The text in double quotes, cut when long, with unprintable characters escaped."""
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown) + '"'


_COMPARED = 60  # characters of a name that are compared
_HUGE = 10**30  # Python refuses to print integers of several thousand digits


def shown(value: object) -> str:
    """Any value of a job file, for the end of "must be …, not …"."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case float():
            return str(value)
        case int():
            return str(value) if abs(value) < _HUGE else "a huge number"
        case str():
            return quoted(value)
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A hint with the nearest candidate, or "" when none is near."""
    known = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name[:_COMPARED].lower(), known, n=1)
    return f"did you mean {quoted(known[near[0]])}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *head, tail = names
    return f"{', '.join(head)} or {tail}" if head else tail
