"""Error messages: what happened, why, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rota.cli.terminal import CommandFailed, Exit, Problem, inert
from rota.runtime.offline import Conflict, Denied, Invalid, NotFound, RotaError, Unavailable
from rota.sdk import errors

_EXITS: tuple[tuple[type[errors.RotaApiError], Exit], ...] = (
    (errors.Unreachable, Exit.UNREACHABLE),
    (errors.NotRota, Exit.UNREACHABLE),
    (errors.Unavailable, Exit.UNREACHABLE),
    (errors.Invalid, Exit.USAGE),
    (errors.Denied, Exit.DENIED),
    (errors.NotFound, Exit.NOT_FOUND),
    (errors.Conflict, Exit.CONFLICT),
)


class FileRefused(CommandFailed):
    """A file has errors, so nothing was changed."""

    def __init__(self, file: str, message: str, problems: Sequence[Problem]) -> None:
        message = f"{message}, nothing was changed"
        super().__init__(message, code=Exit.INVALID_FILE, problems=problems)
        self.file = file


def exit_of(error: CommandFailed | errors.RotaApiError) -> Exit:
    if isinstance(error, CommandFailed):
        return error.code
    return next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.UNEXPECTED)


def explain_failure(error: CommandFailed | errors.RotaApiError) -> str:
    """Return the lines for standard error."""
    if isinstance(error, FileRefused):
        found = [describe_problem(problem, file=error.file) for problem in error.problems]
        return "\n".join([*found, inert(error.message), ""])
    problems = error.problems if isinstance(error, CommandFailed) else error.errors
    lines = [f"rota: {inert(error.message)}"]
    lines += [f"  {describe_problem(problem)}" for problem in problems]
    if isinstance(error, errors.RotaApiError) and exit_of(error) is Exit.UNEXPECTED:
        lines += [f"  trace {inert(error.trace_id)} in the server's log"] if error.trace_id else []
    if error.hint:
        lines.append(f"  {inert(error.hint)}")
    return "\n".join([*lines, ""])


def describe_problem(problem: Problem, *, file: str = "", error_label: str = "") -> str:
    """Return `jobs.yaml:7:5  unknown key "shedule" — did you mean "schedule"?`"""
    line, column = problem.line, problem.column
    place = ":".join(str(part) for part in (file, line, column) if part)
    if line is None and problem.path:
        place = ":".join(part for part in (file, problem.path) if part)
    label = "warning: " if problem.warning else error_label
    text = label + problem.message + (f" — {problem.hint}" if problem.hint else "")
    return inert(f"{place}  {text}" if place else text)


def counted(count: int, noun: str) -> str:
    """Return `1 error`, `2 errors`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


_LOCAL_EXITS: tuple[tuple[type[RotaError], Exit], ...] = (
    (NotFound, Exit.NOT_FOUND),
    (Denied, Exit.DENIED),
    (Conflict, Exit.CONFLICT),
    (Invalid, Exit.USAGE),
    (Unavailable, Exit.UNREACHABLE),
)


@contextmanager
def errors_as_failures() -> Iterator[None]:
    """Turn errors of the domain into failures of the command."""
    try:
        yield
    except RotaError as error:
        problems = error.problems if isinstance(error, Invalid) else ()
        code = next(
            (code for kind, code in _LOCAL_EXITS if isinstance(error, kind)), Exit.UNEXPECTED
        )
        raise CommandFailed(error.message, code=code, hint=error.hint, problems=problems) from error
