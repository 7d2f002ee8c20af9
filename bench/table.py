"""Comparisons as text and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.figures import Comparison, Goal, Sample
from bench.machine import QUIET_CORES

_HEADINGS = ("", "what", "rota", "peer", "", "ratio", "target", "verdict")
_MARK = "*"
_NOT_JUDGED = f"not judged{_MARK}"


def render(comparisons: Sequence[Comparison]) -> str:
    """The table, with notes under it if others kept the machine busy."""
    lines = aligned([_HEADINGS, *map(_cells, comparisons)])
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join([*lines, *_notes(comparisons)])


def verdict(comparison: Comparison) -> str:
    """`met`, or by how much it is missed; empty without a target."""
    shortfall = comparison.shortfall
    if shortfall is None:
        return ""
    if not comparison.is_judged:
        return _NOT_JUDGED
    return "met" if shortfall <= 0 else f"missed by {shortfall:.0%}"


def as_document(comparison: Comparison) -> dict[str, Any]:
    """What the JSON file says about one comparison."""
    peer = comparison.peer_sample
    return {
        "workload": comparison.workload,
        "what": comparison.what,
        "rota": sample_document(comparison.rota),
        "peer": None if peer is None else {"name": comparison.peer} | sample_document(peer),
        "ratio": comparison.ratio,
        "target": _goal_text(comparison.goal, comparison.rota.unit),
        "verdict": verdict(comparison),
        "is_judged": comparison.is_judged,
        "foreign_cores": round(comparison.foreign_cores, 3),
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
        sample_text(comparison.rota),
        comparison.peer,
        "" if peer is None else sample_text(peer),
        "" if ratio is None else f"{number_text(ratio)} ×",
        _goal_text(comparison.goal, comparison.rota.unit),
        verdict(comparison),
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in padded]


def sample_text(sample: Sample) -> str:
    median = f"{number_text(sample.median)} {sample.unit}{'' if sample.is_judged else _MARK}"
    details = []
    if len(sample.shown) > 1:
        details.append(f"{number_text(sample.low)}–{number_text(sample.high)}")
    if sample.is_judged and sample.left_out:
        details.append(f"{len(sample.left_out)} left out")
    return f"{median} ({'; '.join(details)})" if details else median


def sample_document(sample: Sample) -> dict[str, Any]:
    """The median is that of `values`, or of `left_out` where nothing else is there."""
    return {
        "median": sample.median,
        "values": list(sample.values),
        "left_out": list(sample.left_out),
        "unit": sample.unit,
    }


def _goal_text(goal: Goal | None, unit: str) -> str:
    if goal is None:
        return ""
    return f"{goal.sense.value} {goal.limit:g} {'×' if goal.is_ratio else unit}"


def _notes(comparisons: Sequence[Comparison]) -> list[str]:
    notes = []
    if any(s.is_judged and s.left_out for each in comparisons for s in each.samples):
        notes.append(
            f"left out: turns in which other processes used more than {QUIET_CORES:g} cores,"
            " whenever they were taken; the median is that of the others"
        )
    unjudged = [each for each in comparisons if not each.is_judged]
    if unjudged:
        most = max(each.foreign_cores for each in unjudged)
        notes.append(
            f"{_MARK} The machine was busy: other processes used up to {most:.1f} cores in every"
            " turn, so these figures say nothing. Repeat them when it is quiet."
        )
    return ["", *notes] if notes else []
