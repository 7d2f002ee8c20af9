"""Errors of what runs in this process, told like those of a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rota.cli.exits import CommandFailed, Exit
from rota.runtime.offline import Conflict, Denied, Invalid, NotFound, RotaError, Unavailable

_EXITS: tuple[tuple[type[RotaError], Exit], ...] = (
    (NotFound, Exit.NOT_FOUND),
    (Denied, Exit.DENIED),
    (Conflict, Exit.CONFLICT),
    (Invalid, Exit.USAGE),
    (Unavailable, Exit.UNREACHABLE),
)


@contextmanager
def told_as_failures() -> Iterator[None]:
    """Turn errors of the domain into failures of the command."""
    try:
        yield
    except RotaError as error:
        problems = error.problems if isinstance(error, Invalid) else ()
        code = next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.UNEXPECTED)
        raise CommandFailed(error.message, code=code, hint=error.hint, problems=problems) from error
