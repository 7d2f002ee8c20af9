"""Context of a function: facts about its attempt, and its logs, steps and progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


class Cancelled(BaseException):
    """Raised inside a function whose attempt is to stop.

    Not an `Exception`, so that a function which handles its errors does not handle this one.
    """


@dataclass(frozen=True, slots=True)
class StepReport:
    name: str
    result: str  # completed, failed, cancelled
    seconds: float


class Reporter(Protocol):
    """Receiver of what a context reports."""

    @property
    def is_cancelled(self) -> bool: ...

    def progress(self, done: float, total: float | None, message: str) -> None: ...

    def log(self, text: str) -> None: ...

    def step_began(self, number: int, name: str) -> None:
        """Assign output to this step from here on. Numbers count from 0, by begin."""
        ...

    def step_ended(self, number: int, report: StepReport, outer: int | None) -> None:
        """Note how a step ended, and assign output to the one around it; None: there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of the attempt."""

    run_id: str
    job: str
    attempt: int
    due_at: datetime
    project: str = "default"
    inputs: Mapping[str, Any] = field(default_factory=dict)
    fence: int = 0  # 0: the attempt's number


class Context:
    """First argument of a function that names it `ctx` or annotates it with this class."""

    def __init__(self, identity: Identity, reporter: Reporter) -> None:
        self._identity = identity
        self._reporter = reporter
        self._steps = 0
        self._step: int | None = None  # the innermost that goes on

    @property
    def run_id(self) -> str:
        return self._identity.run_id

    @property
    def job(self) -> str:
        return self._identity.job

    @property
    def project(self) -> str:
        return self._identity.project

    @property
    def attempt(self) -> int:
        """Return the number of the attempt: 1 for the first try."""
        return self._identity.attempt

    @property
    def fence(self) -> int:
        """Return a number that grows by attempt: a target that refuses lower ones is safe."""
        return self._identity.fence or self._identity.attempt

    @property
    def due_at(self) -> datetime:
        return self._identity.due_at

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self._identity.inputs

    @property
    def cancelled(self) -> bool:
        """Return whether the attempt is to stop; a function that checks may end in its own way."""
        return self._reporter.is_cancelled

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        self._reporter.progress(done, total, message)

    def log(self, message: object) -> None:
        """Print one line of output."""
        self._reporter.log(f"{message}\n")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a named part of the work, and show it as a step of the attempt."""
        number, outer = self._steps, self._step
        self._steps += 1
        self._step = number
        self._reporter.step_began(number, name)
        began = time.monotonic()
        result = "failed"
        try:
            yield
            result = "completed"
        except Cancelled:
            result = "cancelled"
            raise
        finally:
            self._step = outer
            report = StepReport(name, result, time.monotonic() - began)
            self._reporter.step_ended(number, report, outer)
