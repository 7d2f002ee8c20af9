"""Errors that are caused by a caller or by the world.

RotaError
├── Invalid            the input is wrong; carries every problem found      (400, 422)
├── NotFound           no such thing, or none this caller may see           (404)
├── Conflict           the thing is not in the state the caller assumed     (409, 412)
│   ├── StaleTransition   a guarded write found another state or fence
│   └── StaleStream       the worker has connected anew, perhaps to another server
├── Denied             not logged in, or not allowed                        (401, 403)
└── Unavailable        the store, a worker or a resource cannot be reached  (503, 429)
    └── LockedTooLong     other transactions keep the rows locked that are needed

Each has a stable text `code` for programs, a message for people that says what to do next
(`hint`), and facts as attributes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input, at one place of it."""

    message: str
    path: str = ""  # dotted path inside the document, e.g. "jobs[0].steps[1].run"; "" = the whole
    line: int | None = None  # 1-based; None when the input had no lines (JSON body, flag)
    column: int | None = None  # 1-based
    hint: str = ""  # what to type instead; "" when the message says it all
    warning: bool = False  # True: worth a look, but the input is accepted

    def __str__(self) -> str:
        place = ""
        if self.line is not None:
            place = f"{self.line}:{self.column}  " if self.column is not None else f"{self.line}  "
        elif self.path:
            place = f"{self.path}  "
        return f"{place}{self.message}" + (f" — {self.hint}" if self.hint else "")


class RotaError(Exception):
    """The root: never raised itself."""

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        hint: str = "",
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.facts: Mapping[str, object] = facts or {}


class Invalid(RotaError):
    """The input is wrong; `problems` has every fault found, never only the first."""

    code = "invalid"

    def __init__(
        self,
        message: str,
        problems: Sequence[Problem] = (),
        *,
        code: str = "",
        hint: str = "",
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint, facts=facts)
        self.problems = tuple(problems)


class NotFound(RotaError):
    """No such thing, or none that this caller may see."""

    code = "not_found"


class Conflict(RotaError):
    """The thing is not in the state that the caller assumed."""

    code = "conflict"


class StaleTransition(Conflict):
    """A guarded write found another state, attempt or session than expected."""

    code = "stale_transition"


class StaleStream(Conflict):
    """A server acted for a worker that has connected anew since, perhaps to another server."""

    code = "stale_stream"


class Denied(RotaError):
    """Not logged in, or not allowed."""

    code = "denied"


class Unavailable(RotaError):
    """Something Rota depends on cannot be reached or has no room; trying later may help."""

    code = "unavailable"


class LockedTooLong(Unavailable):
    """Rows in the store stay locked by others for too long.

    The store itself is well: whoever needs something else gets it.
    """


def codes_of(error: RotaError) -> list[str]:
    """List its own code, then those of its classes, the nearest first."""
    return [error.code, *(cls.code for cls in type(error).__mro__ if issubclass(cls, RotaError))]


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, however deep it lies; of any other, that one."""
    return first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


_LONGEST = 60


def quoted(text: str) -> str:
    """Quote the text, cut when long, with unprintable characters escaped."""
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown) + '"'


_COMPARED = 60  # characters of a name that are compared
_HUGE = 10**30  # Python refuses to print integers of several thousand digits


def shown(value: object) -> str:
    """Format any value of a job file, for the end of "must be …, not …"."""
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
    """Return a hint with the nearest candidate, or "" when none is near."""
    known = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name[:_COMPARED].lower(), known, n=1)
    return f"did you mean {quoted(known[near[0]])}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Join names: `a`, `a or b`, `a, b or c`."""
    *head, tail = names
    return f"{', '.join(head)} or {tail}" if head else tail
