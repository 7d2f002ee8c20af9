"""Errors as RFC 9457 problems."""

from __future__ import annotations

from rota.api.answers import Answer


class Problem(Answer, frozen=True, kw_only=True):
    """One thing wrong with an input, or worth a look in it, at one place."""

    path: str = ""  # dotted path inside the document; "" = the whole
    line: int | None = None
    column: int | None = None
    message: str
    hint: str = ""
    warning: bool = False  # worth a look, but nothing is refused because of it

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.line, self.column) if part) or self.path
        text = f"{place}  {self.message}" if place else self.message
        return f"{text} — {self.hint}" if self.hint else text


class ProblemReport(Answer, frozen=True, kw_only=True):
    """Why a request was not done, and what to do about it."""

    type: str = ""  # a URN that names the kind of problem
    title: str = ""
    status: int = 0
    detail: str = ""
    hint: str = ""  # what to do next; "" when the detail says it all
    code: str = ""  # stable, for programs
    errors: tuple[Problem, ...] = ()
    trace_id: str = ""  # also in the server's log
