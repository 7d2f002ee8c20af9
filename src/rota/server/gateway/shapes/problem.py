"""Errors as RFC 9457 problems."""

from __future__ import annotations

from rota.server.gateway.shapes.models import Answer


class Fault(Answer):
    """One thing wrong with an input, or worth a look in it, at one place."""

    path: str  # dotted path inside the document; "" = the whole
    line: int | None
    column: int | None
    message: str
    hint: str
    warning: bool  # worth a look, but nothing is refused because of it


class ProblemReport(Answer):
    """Why a request was not done, and what to do about it."""

    type: str  # a URN that names the kind of problem
    title: str
    status: int
    detail: str
    hint: str  # what to do next; "" when the detail says it all
    code: str  # stable, for programs
    errors: list[Fault]
    trace_id: str  # also in the server's log
