"""Steps of an attempt, one line each, and what a failed one printed last."""

from __future__ import annotations

from collections.abc import Iterable

from rota.cli import times
from rota.cli.inert import inert, inert_output, width_of
from rota.sdk.answers import Attempt, LogLine, Step

_MARKS = {"completed": "✔", "skipped": "–"}
_SHOWN = 10


def step_line(step: Step, width: int) -> str:
    """`  Test       ✖ exit 1  (12.0 s)`."""
    name = inert(step.name)
    padded = name + " " * (width - width_of(name))
    mark = _MARKS.get(step.result, "✖")
    if step.result == "skipped":
        return f"  {padded}  {mark} skipped"
    if step.result == "completed":
        return f"  {padded}  {mark} {times.length(step.seconds)}{_tries(step)}"
    return f"  {padded}  {mark} {_ending(step)}  ({times.length(step.seconds)}){_tries(step)}"


def failed_steps(attempt: Attempt) -> list[int]:
    """The numbers of the steps that ended badly."""
    return [number for number, step in enumerate(attempt.steps) if step.result not in _MARKS]


def output_tail(lines: Iterable[LogLine], step: int | None) -> list[str]:
    """The last lines that a step printed; None: whatever step it was."""
    printed = [line for line in lines if step is None or line.step == step]
    return [inert_output(line.text) for line in printed[-_SHOWN:]]


def _ending(step: Step) -> str:
    if step.signal is not None:
        return f"signal {step.signal}"
    if step.result == "failed" and step.exit_code is not None:
        return f"exit {step.exit_code}"
    return step.result.replace("_", " ")


def _tries(step: Step) -> str:
    return f"  after {step.tries} tries" if step.tries > 1 else ""
