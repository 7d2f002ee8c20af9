"""Comparisons as text and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.figures import Comparison, Goal, Sample

BUSY = 0.1  # share of the machine in foreign hands from which a figure is not to be trusted

_HEADINGS = ("", "what", "rota", "peer", "", "ratio", "target", "verdict")
_MARK = "*"


def render(comparisons: Sequence[Comparison]) -> str:
    """The table, with a note under it if others kept the machine busy."""
    lines = _aligned([_HEADINGS, *map(_cells, comparisons)])
    lines.insert(1, "─" * max(map(len, lines)))
    if any(is_disturbed(each) for each in comparisons):
        lines += ["", _note(comparisons)]
    return "\n".join(lines)


def is_disturbed(comparison: Comparison) -> bool:
    return comparison.foreign_load > BUSY


def verdict(comparison: Comparison) -> str:
    """`met`, or by how much it is missed; empty without a target."""
    shortfall = comparison.shortfall
    if shortfall is None:
        return ""
    words = "met" if shortfall <= 0 else f"missed by {shortfall:.0%}"
    return words + _MARK if is_disturbed(comparison) else words


def as_document(comparison: Comparison) -> dict[str, Any]:
    """What the JSON file says about one comparison."""
    peer = comparison.peer_sample
    return {
        "workload": comparison.workload,
        "what": comparison.what,
        "rota": _sample_document(comparison.rota),
        "peer": None if peer is None else {"name": comparison.peer} | _sample_document(peer),
        "ratio": comparison.ratio,
        "target": _goal_text(comparison.goal, comparison.rota.unit),
        "verdict": verdict(comparison),
        "foreign_load": round(comparison.foreign_load, 3),
    }


def number_text(value: float) -> str:
    """Three digits that matter, or all of a large number."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _cells(comparison: Comparison) -> tuple[str, ...]:
    peer, ratio = comparison.peer_sample, comparison.ratio
    return (
        comparison.workload,
        comparison.what,
        _sample_text(comparison.rota),
        comparison.peer,
        "" if peer is None else _sample_text(peer),
        "" if ratio is None else f"{number_text(ratio)} ×",
        _goal_text(comparison.goal, comparison.rota.unit),
        verdict(comparison),
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in padded]


def _sample_text(sample: Sample) -> str:
    median = f"{number_text(sample.median)} {sample.unit}"
    if len(sample.values) == 1:
        return median
    return f"{median} ({number_text(sample.low)}–{number_text(sample.high)})"


def _sample_document(sample: Sample) -> dict[str, Any]:
    return {"median": sample.median, "values": list(sample.values), "unit": sample.unit}


def _goal_text(goal: Goal | None, unit: str) -> str:
    if goal is None:
        return ""
    return f"{goal.sense.value} {goal.limit:g} {'×' if goal.is_ratio else unit}"


def _note(comparisons: Sequence[Comparison]) -> str:
    most = max(each.foreign_load for each in comparisons)
    return (
        f"{_MARK} The machine was busy: other processes used up to {most:.0%} of it during these"
        " measurements, so they say little. Repeat them when it is quiet."
    )
