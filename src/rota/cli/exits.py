"""Exit codes, and failures that end a command with one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Protocol


class Exit(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    CONFLICT = 5
    INVALID_FILE = 6
    UNREACHABLE = 7
    RUN_FAILED = 10
    RUN_STOPPED = 11  # cancelled, timed out, or never started
    STILL_GOING = 12  # `--timeout` was reached first
    CART_PAUSED = 13
    RUN_UNKNOWN = 14
    CHANGES = 20
    INTERRUPTED = 130
    BROKEN_PIPE = 141


OF_FINAL_STATE: Mapping[str, Exit] = {
    "COMPLETED": Exit.DONE,
    "FAILED": Exit.RUN_FAILED,
    "TIMED_OUT": Exit.RUN_STOPPED,
    "CANCELLED": Exit.RUN_STOPPED,
    "SKIPPED": Exit.RUN_STOPPED,
    "MISSED": Exit.RUN_STOPPED,
    "UNKNOWN": Exit.RUN_UNKNOWN,
}


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
    @property
    def warning(self) -> bool: ...


class Rehearsed(Exception):
    """Ends a command that was only to say what it would do (`--dry-run`)."""

    def __init__(self, *, changes: bool) -> None:
        super().__init__("nothing was changed")
        self.code = Exit.CHANGES if changes else Exit.DONE


class CommandFailed(Exception):
    """Ends the command: what happened, what to type next, and the exit code."""

    def __init__(
        self, message: str, *, code: Exit, hint: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.problems = problems
