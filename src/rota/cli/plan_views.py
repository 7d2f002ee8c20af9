"""What applying a file does to each calendar, limit, resource, job and cart in it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rota.cli import times
from rota.cli.failures import describe_problem
from rota.cli.inert import inert, width_of
from rota.cli.terminal import Terminal
from rota.sdk.plan_answers import Change, Plan, PlannedCalendar, PlannedCart, PlannedDeclaration

_MARKS = {"new": "+", "changed": "~", "removed": "-", "unchanged": " "}
_COLOURS = {"new": "green", "changed": "yellow", "removed": "red", "unchanged": "dim"}
_KIND_WIDTH = len("unchanged")


class _Entry(NamedTuple):
    name: str
    change: str
    lines: list[str]  # the first beside the name, the others below


def write_plan(terminal: Terminal, file: str, plan: Plan, present: datetime) -> None:
    """A line for each thing in the file, its differences and notes below it.

    Warnings go to standard error.
    """
    entries = [_entry("calendar", calendar) for calendar in plan.calendars]
    entries += [_entry("limit", limit) for limit in plan.limits]
    entries += [_entry("resource", resource) for resource in plan.resources]
    entries += [_job_entry(change, present) for change in plan.changes]
    entries += [_cart_entry(cart, present) for cart in plan.carts]
    width = max((width_of(inert(entry.name)) for entry in entries), default=0)
    for entry in entries:
        _write_entry(terminal, entry, width)
    for warning in plan.warnings:
        terminal.tell(describe_problem(warning, file=file))


def changed_count(plan: Plan) -> int:
    """How many things of the file are not left as they are."""
    changes = [change.change for change in plan.changes]
    changes += [calendar.change for calendar in plan.calendars]
    changes += [declared.change for declared in (*plan.limits, *plan.resources)]
    changes += [cart.change for cart in plan.carts]
    return sum(change != "unchanged" for change in changes)


def _entry(kind: str, planned: PlannedCalendar | PlannedDeclaration) -> _Entry:
    lines = [planned.words, *planned.differences]
    return _Entry(f"{kind} {planned.name}", planned.change, lines)


def _job_entry(change: Change, present: datetime) -> _Entry:
    first = "history stays" if change.change == "removed" else _when(change, present)
    return _Entry(change.name, change.change, [first, *change.differences, *change.notes])


def _cart_entry(cart: PlannedCart, present: datetime) -> _Entry:
    first = "carts made of it stay" if cart.change == "removed" else cart.words
    if cart.next_at is not None:
        first += f", next {times.due(cart.next_at, present)}"
    return _Entry(f"cart {cart.name}", cart.change, [first, *cart.differences, *cart.notes])


def _write_entry(terminal: Terminal, entry: _Entry, width: int) -> None:
    name = inert(entry.name)
    padded = name + " " * (width - width_of(name))
    head = f"{_MARKS.get(entry.change, '?')} {padded}  {entry.change.ljust(_KIND_WIDTH)}"
    first, *below = entry.lines
    terminal.write(f"{terminal.colour(head, _COLOURS.get(entry.change, ''))}  {inert(first)}")
    for line in below:
        terminal.write(f"  {' ' * width}  {' ' * _KIND_WIDTH}  {inert(line)}")


def _when(change: Change, present: datetime) -> str:
    words = str(change.schedule or "on demand")
    if change.next_at is None:
        return words
    return f"{words}, next {times.due(change.next_at, present)}"
