"""Processor time by layer: who works how long for one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bench import processes
from bench.contest import Figures

Seconds: TypeAlias = Mapping[str, float]  # by layer


@dataclass(frozen=True, slots=True)
class Layers:
    """The processes of each layer, by those that started them."""

    roots: Mapping[str, Sequence[int]]

    def read(self) -> Seconds:
        """What each layer has worked so far."""
        return {name: sum(map(processes.cpu_seconds, pids)) for name, pids in self.roots.items()}


def per_run(before: Seconds, after: Seconds, runs: int) -> Figures:
    """Microseconds of each layer."""
    return {f"{name} µs": (after[name] - before[name]) / runs * 1e6 for name in before}
