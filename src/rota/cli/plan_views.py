"""What applying a file does, job by job."""

from __future__ import annotations

from datetime import datetime

from rota.cli import times
from rota.cli.failures import describe_problem
from rota.cli.inert import inert, width_of
from rota.cli.terminal import Terminal
from rota.sdk.answers import Change, Plan

_MARKS = {"new": "+", "changed": "~", "removed": "-", "unchanged": " "}
_COLOURS = {"new": "green", "changed": "yellow", "removed": "red", "unchanged": "dim"}
_KIND_WIDTH = len("unchanged")


def write_plan(terminal: Terminal, file: str, plan: Plan, present: datetime) -> None:
    """A line for each job, its differences and notes below it; warnings on standard error."""
    width = max((width_of(inert(change.name)) for change in plan.changes), default=0)
    for change in plan.changes:
        _write_change(terminal, change, width, present)
    for warning in plan.warnings:
        terminal.tell(describe_problem(warning, file=file))


def _write_change(terminal: Terminal, change: Change, width: int, present: datetime) -> None:
    name = inert(change.name)
    padded = name + " " * (width - width_of(name))
    head = f"{_MARKS.get(change.change, '?')} {padded}  {change.change.ljust(_KIND_WIDTH)}"
    first, *below = [_when(change, present), *map(str, change.differences), *change.notes]
    if change.change == "removed":
        first = "history stays"
    terminal.write(f"{terminal.colour(head, _COLOURS.get(change.change, ''))}  {inert(first)}")
    for line in below:
        terminal.write(f"  {' ' * width}  {' ' * _KIND_WIDTH}  {inert(line)}")


def _when(change: Change, present: datetime) -> str:
    words = str(change.schedule or "on demand")
    if change.next_at is None:
        return words
    return f"{words}, next {times.moment(change.next_at, present)}"
