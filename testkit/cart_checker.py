"""Checks what the items of a cart wrote about themselves, knowing nothing of how Rota moves them.

`testkit.checker` checks the attempts of each run; this looks at runs of one cart together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from testkit.checker import most_at_once
from testkit.evidence import Mark


class CartFault(StrEnum):
    EARLY = "early"  # an item began before the last of a lower wave had ended
    CROWDED = "crowded"  # more lived at once than may
    OVERLAP = "overlap"  # two runs of an item lived at the same time


@dataclass(frozen=True, slots=True)
class CartFinding:
    fault: CartFault
    detail: str


@dataclass(frozen=True, slots=True)
class ItemRun:
    """Run of an item, as it was requested."""

    item: str
    wave: int
    round: int = 1  # how often its items had been asked for then; waves hold within one


@dataclass(frozen=True, slots=True)
class _Life:
    """Lifetime of a run in the evidence, from its first mark to its last."""

    of: ItemRun
    first: float
    last: float


def check_cart(
    marks: Iterable[Mark], runs: Mapping[str, ItemRun], max_parallel: int | None = None
) -> list[CartFinding]:
    """Find everything wrong with the evidence of these runs; marks of others are ignored."""
    own = [mark for mark in marks if mark.run in runs]
    lives = _lives(own, runs)
    findings = [*_judge_order(lives), *_judge_items(lives)]
    most = most_at_once(own)
    if max_parallel is not None and most > max_parallel:
        findings.append(CartFinding(CartFault.CROWDED, f"{most} at once"))
    return findings


def _lives(marks: Iterable[Mark], runs: Mapping[str, ItemRun]) -> list[_Life]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for mark in marks:
        times[mark.run].append(mark.at)
    return [_Life(runs[run], min(own), max(own)) for run, own in times.items()]


def _judge_order(lives: Sequence[_Life]) -> Iterable[CartFinding]:
    for number in sorted({life.of.round for life in lives}):
        yield from _judge_round([life for life in lives if life.of.round == number])


def _judge_round(lives: Sequence[_Life]) -> Iterable[CartFinding]:
    """Compare each run's start with the last end in all lower waves."""
    slowest: _Life | None = None
    for wave in sorted({life.of.wave for life in lives}):
        members = [life for life in lives if life.of.wave == wave]
        for life in members:
            if slowest is not None and life.first < slowest.last:
                yield CartFinding(CartFault.EARLY, f"{_named(life)} before {_named(slowest)}")
        latest = max(members, key=lambda life: life.last)
        slowest = latest if slowest is None or latest.last > slowest.last else slowest


def _judge_items(lives: Sequence[_Life]) -> Iterable[CartFinding]:
    by_item: defaultdict[str, list[_Life]] = defaultdict(list)
    for life in sorted(lives, key=lambda life: (life.first, life.last)):
        by_item[life.of.item].append(life)
    for own in by_item.values():
        for one, other in pairwise(own):
            if other.first < one.last:
                yield CartFinding(CartFault.OVERLAP, _named(one))


def _named(life: _Life) -> str:
    return f"{life.of.item} of wave {life.of.wave}"
