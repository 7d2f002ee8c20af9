"""Takes turns between contestants, so that whatever the machine does happens to all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.figures import Sample
from bench.machine import (
    QUIET_CORES,
    foreign_cores,
    look_around,
    read_cpu,
    wait_until_quiet,
)
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

    @property
    def takes(self) -> int:
        """How often a turn is taken at the most: again while others disturb it."""
        return 1 if self.is_quick else 3

    def pick(self, full: int, quick: int) -> int:
        return quick if self.is_quick else full


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    measure: Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Turn:
    """What was measured, and how many cores others used before, meanwhile or after: the most."""

    figures: Figures
    foreign_cores: float

    @property
    def is_quiet(self) -> bool:
        return self.foreign_cores <= QUIET_CORES


@dataclass(frozen=True, slots=True)
class Result:
    """What one contestant achieved; turns that others disturbed are not counted."""

    turns: tuple[Turn, ...]

    @property
    def counted(self) -> tuple[Turn, ...]:
        return tuple(turn for turn in self.turns if turn.is_quiet)

    @property
    def foreign_cores(self) -> float:
        """The worst of the turns that are shown: those that count, or all if none does."""
        return max(turn.foreign_cores for turn in self.counted or self.turns)

    def sample(self, figure: str, unit: str) -> Sample:
        counted = tuple(turn.figures[figure] for turn in self.counted)
        left_out = tuple(turn.figures[figure] for turn in self.turns if not turn.is_quiet)
        return Sample(counted, unit, left_out)


def sample_of(values: tuple[float, ...], unit: str, foreign: float) -> Sample:
    """What was measured in one turn, counted or left out by how many cores others used."""
    return Sample(values, unit) if foreign <= QUIET_CORES else Sample((), unit, values)


class Disturbance:
    """How many cores others used around and during a block; known when it has ended."""

    foreign_cores = 0.0


@contextmanager
def watched(plan: Plan) -> Iterator[Disturbance]:
    """Wait for quiet, then watch what others use until the block has ended."""
    seen = Disturbance()
    around = wait_until_quiet(plan.patience_seconds)
    before = read_cpu()
    yield seen
    meanwhile = foreign_cores(before, read_cpu())
    seen.foreign_cores = max(around, meanwhile, look_around())


def is_taken_again(foreign: Sequence[float], plan: Plan) -> bool:
    """Whether to take a turn (again), given the cores that others used in its takes so far."""
    return len(foreign) < plan.takes and all(cores > QUIET_CORES for cores in foreign)


def take_turns(contestants: Sequence[Contestant], plan: Plan) -> dict[str, Result]:
    """Measure each contestant once, then each again, and so on; results by name."""
    turns: dict[str, list[Turn]] = {each.name: [] for each in contestants}
    for number in range(plan.repeats):
        for contestant in contestants:
            who = f"{contestant.name}, {number + 1} of {plan.repeats}"
            turns[contestant.name].append(_take(contestant, plan, who))
    return {name: Result(tuple(taken)) for name, taken in turns.items()}


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Look until the condition holds; a `TimeoutError` says what was waited for."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(_LOOK_SECONDS)


def _take(contestant: Contestant, plan: Plan, who: str) -> Turn:
    """Take a turn, and again while others disturb it; the quietest if they always do."""
    takes: list[Turn] = []
    while is_taken_again([turn.foreign_cores for turn in takes], plan):
        with watched(plan) as seen:
            figures = contestant.measure()
        takes.append(Turn(figures, seen.foreign_cores))
        _tell(who, takes[-1])
    return min(takes, key=lambda turn: turn.foreign_cores)


def _tell(who: str, turn: Turn) -> None:
    shown = ", ".join(f"{name} {number_text(value)}" for name, value in turn.figures.items())
    words = "" if turn.is_quiet else ": too much to count"
    print(f"   {who}: {shown} (others used {turn.foreign_cores:.2f} cores{words})", flush=True)
