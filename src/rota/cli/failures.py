"""Failures in words: what happened, why, and what to type next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rota.cli.exits import CommandFailed, Exit
from rota.cli.inert import inert
from rota.sdk import errors

_EXITS: tuple[tuple[type[errors.RotaApiError], Exit], ...] = (
    (errors.Unreachable, Exit.UNREACHABLE),
    (errors.Unavailable, Exit.UNREACHABLE),
    (errors.Invalid, Exit.USAGE),
    (errors.Denied, Exit.DENIED),
    (errors.NotFound, Exit.NOT_FOUND),
    (errors.Conflict, Exit.CONFLICT),
)


class Problem(Protocol):
    """One thing wrong with an input, whether the server found it or this machine."""

    @property
    def message(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def line(self) -> int | None: ...
    @property
    def column(self) -> int | None: ...
    @property
    def hint(self) -> str | None: ...


def exit_of(error: CommandFailed | errors.RotaApiError) -> Exit:
    if isinstance(error, CommandFailed):
        return error.exit
    return next((exit for kind, exit in _EXITS if isinstance(error, kind)), Exit.UNEXPECTED)


def explain_failure(error: CommandFailed | errors.RotaApiError) -> str:
    """The lines for standard error."""
    lines = [f"rota: {inert(error.message)}"]
    if isinstance(error, errors.RotaApiError):
        lines += [f"  {describe_problem(problem)}" for problem in error.errors]
        if exit_of(error) is Exit.UNEXPECTED and error.trace_id:
            lines.append(f"  trace {inert(error.trace_id)} in the server's log")
    if error.hint:
        lines.append(f"  {inert(error.hint)}")
    return "\n".join([*lines, ""])


def describe_problem(problem: Problem, *, file: str = "", label: str = "") -> str:
    """`jobs.yaml:7:5  unknown key "shedule" — did you mean "schedule"?`"""
    line, column = problem.line, problem.column
    place = ":".join(str(part) for part in (file, line, column) if part)
    if line is None and problem.path:
        place = ":".join(part for part in (file, problem.path) if part)
    text = label + problem.message + (f" — {problem.hint}" if problem.hint else "")
    return inert(f"{place}  {text}" if place else text)


def count_of(items: Iterable[object], noun: str) -> str:
    """`1 error`, `2 errors`."""
    count = sum(1 for _ in items)
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
