"""Runs that take place inside a test."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Coroutine, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from typing import Any

from rota.domain.retry import Ending, attempt_ended
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec
from rota.domain.states import FINAL_STATES, RunState
from rota.sdk.answers import LogLine, Progress, RunDetail
from rota.sdk.context import Context, Identity, StepReport
from rota.sdk.functions import JobFunction
from rota.sdk.values import to_plain


@dataclass(slots=True, eq=False)
class InlineRun:
    """A run, as it stands. Hears the context of its function."""

    id: str
    job: str
    due_at: datetime
    inputs: Mapping[str, Any]
    state: RunState = RunState.SCHEDULED
    eligible_at: datetime | None = None  # when it is run; None once it has ended
    attempt: int = 0
    failures: int = 0
    output: Any = None  # what the function returned
    message: str = ""
    cause: str = ""
    printed: str = ""  # all that its attempts printed
    steps: list[StepReport] = field(default_factory=list)  # of the latest attempt
    last_progress: tuple[float, float | None, str] | None = None
    is_cancelled: bool = False

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    def progress(self, done: float, total: float | None, message: str) -> None:
        self.last_progress = (done, total, message)

    def log(self, text: str) -> None:
        sys.stdout.write(text)  # which is captured while the function runs

    def step_began(self, number: int | None) -> None:
        """Output is kept in one piece here."""

    def step_ended(self, report: StepReport) -> None:
        self.steps.append(report)

    def answer(self) -> RunDetail:
        """As the server would show it."""
        progress = self.last_progress
        return RunDetail(
            id=self.id,
            job=self.job,
            state=self.state,
            due_at=self.due_at,
            attempt=self.attempt,
            failures=self.failures,
            inputs=self.inputs,
            outputs=self.output,
            message=self.message,
            cause=self.cause,
            progress=progress
            and Progress(done=progress[0], total=progress[1], message=progress[2]),
        )

    def lines(self) -> tuple[LogLine, ...]:
        return tuple(
            LogLine(n=number, text=text) for number, text in enumerate(self.printed.splitlines())
        )


def execute(run: InlineRun, job: JobFunction[..., Any, Any], spec: JobSpec, now: datetime) -> None:
    """One attempt, and what follows from its end by the job's rules."""
    run.attempt += 1
    run.state = RunState.PROCESSING
    run.steps.clear()
    result = _attempt(run, job, spec)
    ending = Ending(RunState.PROCESSING, result, now, failures=run.failures)
    verdict = attempt_ended(ending, spec.retry, spec.max_losses, 0.0)
    run.state, run.cause, run.eligible_at = verdict.state, verdict.cause, verdict.eligible_at
    run.failures += result is AttemptResult.FAILED


def _attempt(run: InlineRun, job: JobFunction[..., Any, Any], spec: JobSpec) -> AttemptResult:
    captured = StringIO()
    try:
        with redirect_stdout(captured), redirect_stderr(captured):
            run.output = to_plain(_call(run, job, spec))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the edge of the function)
        run.message = traceback.format_exception_only(error)[-1].strip()
        captured.write("".join(traceback.format_exception(error)))
        return AttemptResult.FAILED
    finally:
        run.printed += captured.getvalue()
    return AttemptResult.COMPLETED


def _call(run: InlineRun, job: JobFunction[..., Any, Any], spec: JobSpec) -> Any:
    arguments = job.parameters.unpack(run.inputs)
    identity = Identity(run.id, run.job, run.attempt, run.due_at, spec.project, run.inputs)
    context = [Context(identity, run)] if job.parameters.takes_context else []
    value = job.fn(*context, **arguments)
    return _awaited(value) if job.is_async else value


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The coroutine's result, also where the test itself runs on an event loop."""
    outcome: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]
