"""Takes turns between contestants, so that whatever the machine does happens to all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Sample
from bench.machine import foreign_load, read_cpu, wait_until_quiet
from bench.table import number_text

Figures = Mapping[str, float]

_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly to measure."""

    repeats: int = 3
    is_quick: bool = False  # small numbers: shows that the bench works, not what Rota can do
    is_full: bool = False  # also what takes very long

    @property
    def patience_seconds(self) -> float:
        """How long to wait for a quiet machine before each turn."""
        return 1.0 if self.is_quick else 30.0

    def pick(self, full: int, quick: int) -> int:
        return quick if self.is_quick else full


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    measure: Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Result:
    """What one contestant achieved, one set of figures per turn."""

    turns: tuple[Figures, ...]
    foreign_load: float  # the worst of all turns

    def sample(self, figure: str, unit: str) -> Sample:
        return Sample(tuple(turn[figure] for turn in self.turns), unit)


def take_turns(contestants: Sequence[Contestant], plan: Plan) -> dict[str, Result]:
    """Measure each contestant once, then each again, and so on; results by name."""
    turns: dict[str, list[Figures]] = {each.name: [] for each in contestants}
    loads: dict[str, float] = dict.fromkeys(turns, 0.0)
    for turn in range(plan.repeats):
        for contestant in contestants:
            wait_until_quiet(plan.patience_seconds)
            figures, load = _measure(contestant)
            turns[contestant.name].append(figures)
            loads[contestant.name] = max(loads[contestant.name], load)
            _tell(f"{contestant.name}, {turn + 1} of {plan.repeats}", figures, load)
    return {name: Result(tuple(turns[name]), loads[name]) for name in turns}


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Look until the condition holds; a `TimeoutError` says what was waited for."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(_LOOK_SECONDS)


def _measure(contestant: Contestant) -> tuple[Figures, float]:
    before = read_cpu()
    figures = contestant.measure()
    return figures, foreign_load(before, read_cpu())


def _tell(who: str, figures: Figures, load: float) -> None:
    shown = ", ".join(f"{name} {number_text(value)}" for name, value in figures.items())
    print(f"   {who}: {shown} (others used {load:.0%} of the machine)", flush=True)
