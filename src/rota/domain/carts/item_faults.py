"""What is wrong with a file of items: many faults, each told with its line."""

from __future__ import annotations

from typing import NoReturn

from rota.domain.errors import Invalid, Problem

MAX_REPORTED = 100


class Faults:
    """The faults found so far; those past `MAX_REPORTED` are only counted."""

    def __init__(self) -> None:
        self._reported: list[Problem] = []
        self._left_out = 0

    def add(self, line: int, message: str, hint: str = "") -> None:
        if len(self._reported) < MAX_REPORTED:
            self._reported.append(Problem(message, line=line, hint=hint))
        else:
            self._left_out += 1

    def stop(self, line: int, message: str, hint: str = "") -> NoReturn:
        """Give up reading: `Invalid` with everything found, and this as the last of it."""
        last = Problem(message, line=line, hint=hint)
        raise _refusal([*self._shown(), last], self._count() + 1)

    def raise_found(self) -> None:
        if self._reported:
            raise _refusal(self._shown(), self._count())

    def _count(self) -> int:
        return len(self._reported) + self._left_out

    def _shown(self) -> list[Problem]:
        more = [Problem(f"and {self._left_out:,} more")] if self._left_out else []
        return [*self._reported, *more]


def _refusal(problems: list[Problem], count: int) -> Invalid:
    errors = "1 error" if count == 1 else f"{count:,} errors"
    return Invalid(f"the file of items has {errors}", problems)
