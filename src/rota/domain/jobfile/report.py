"""Collecting every problem of a document, each with its path and its place in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile.text import Mark, Place
from rota.domain.wording import quoted

MAX_PROBLEMS = 1_000
MAX_NAME = 128


class Report:
    """The problems found so far, of each severity at most `MAX_PROBLEMS`."""

    def __init__(self, errors: Sequence[Problem] = ()) -> None:
        self._errors = list(errors[:MAX_PROBLEMS])
        self._warnings: list[Problem] = []

    @property
    def is_full(self) -> bool:
        """Whether looking for more errors is useless: a hostile file has 10⁵ of them."""
        return len(self._errors) >= MAX_PROBLEMS

    def add(self, problem: Problem) -> None:
        problems = self._warnings if problem.warning else self._errors
        if len(problems) < MAX_PROBLEMS:
            problems.append(problem)

    def warnings(self) -> tuple[Problem, ...]:
        return tuple(sorted(self._warnings, key=_line_order))

    def raise_errors(self, what: str) -> None:
        """Raise `Invalid` with everything found, warnings too, if any of it is an error."""
        if not self._errors:
            return
        problems = sorted([*self._errors, *self._warnings], key=_line_order)
        if self.is_full:
            problems.append(Problem(f"only the first {MAX_PROBLEMS:,} errors are shown"))
        count = len(self._errors)
        raise Invalid(f"{what} has {'1 error' if count == 1 else f'{count:,} errors'}", problems)


def _line_order(problem: Problem) -> tuple[int, int]:
    return (problem.line or 0, problem.column or 0)


@dataclass(frozen=True, slots=True)
class At:
    """One position in the document being checked: where a problem there is reported."""

    report: Report
    path: tuple[str | int, ...] = ()
    scope: str = ""  # the thing it belongs to, for messages: "job BuildAndTest"
    mark: Mark | None = None  # None: not in the text itself
    place: Place | None = None  # of the nearest thing that is; None: there is no text

    @classmethod
    def root(cls, report: Report, mark: Mark | None = None) -> At:
        return cls(report, mark=mark, place=mark.place if mark else None)

    def child(self, key: str | int) -> At:
        mark = self.mark.children.get(key) if self.mark and self.mark.children else None
        place = mark.place if mark else self.place
        return At(self.report, (*self.path, key), self.scope, mark, place)

    def within(self, scope: str) -> At:
        return At(self.report, self.path, scope, self.mark, self.place)

    @property
    def name(self) -> str:
        """What to call this value in a message: its field, or its field and number."""
        field = next((part for part in reversed(self.path) if isinstance(part, str)), "the file")
        is_item = self.path and isinstance(self.path[-1], int)
        return f"{field}[{self.path[-1]}]" if is_item else field

    @property
    def written(self) -> str | None:
        """The scalar as typed, when it was typed without quotes."""
        return self.mark.written if self.mark else None

    def refuse(self, message: str, hint: str = "") -> None:
        """Report a wrong value."""
        self._add(message, hint, self.place)

    def warn(self, message: str, hint: str = "") -> None:
        self._add(message, hint, self.place, warning=True)

    def refuse_key(self, message: str, hint: str = "") -> None:
        """Report the name a value stands under."""
        self._add(message, hint, self.mark.key if self.mark else self.place)

    def refuse_unknown(self, key: str, hint: str) -> None:
        """Report a key, a child of this position, that means nothing here."""
        where = f" in {self.scope}" if self.scope else ""
        self.child(key).refuse_key(f"unknown key {quoted(key)}{where}", hint)

    def _add(self, message: str, hint: str, place: Place | None, warning: bool = False) -> None:
        line, column = place or (None, None)
        path = dotted(self.path)
        self.report.add(Problem(message, path, line, column, hint, warning))


def refuse_repeated(what: str, name: str, at: At, first: dict[str, At]) -> None:
    """Refuse a name that is there twice; `first` remembers where each stood first."""
    earlier = first.setdefault(name, at)
    if earlier is not at:
        where = f"in line {earlier.place.line}" if earlier.place else f"at {dotted(earlier.path)}"
        at.refuse(f"{what} is already {where}")


def dotted(path: tuple[str | int, ...]) -> str:
    """`("jobs", 0, "run")` as `jobs[0].run`."""
    return "".join(_step(part) for part in path).removeprefix(".")


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    is_tame = part.isprintable() and len(part) <= MAX_NAME
    return f".{part}" if is_tame else f"[{quoted(part)}]"
