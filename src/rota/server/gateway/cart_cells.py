"""All items of a cart at a glance: a letter each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# An open item has the letter of its run.
LEGEND: Mapping[str, str] = {
    "P": "PENDING",
    "D": "SCHEDULED",
    "B": "BLOCKED",
    "Q": "QUEUED",
    "L": "CLAIMED",
    "R": "PROCESSING",
    "U": "UNKNOWN",
    "C": "COMPLETED",
    "F": "FAILED",
    "T": "TIMED_OUT",
    "X": "CANCELLED",
    "S": "SKIPPED",
    "M": "MISSED",
}
_LETTERS = {state: letter for letter, state in LEGEND.items()}


def cells_in_letters(states: Iterable[str]) -> str:
    """The letter of each state, in order."""
    return "".join(_LETTERS[state] for state in states)
