"""Checks evidence against what was promised, knowing nothing of how Rota keeps it.

It looks only at what jobs wrote about themselves and at the list of what should have run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise

from testkit.evidence import CLOCK_TICK, Event, Mark


class Fault(StrEnum):
    OVERLAP = "overlap"  # two attempts of a run lived at the same time
    REPEATED_ATTEMPT = "repeated attempt"  # one attempt began twice
    STALE_ATTEMPT = "stale attempt"  # an attempt began after one with a higher number
    MISSING = "missing"  # a run that should have ended well did not
    EXTRA = "extra"  # a run that nobody asked for
    REPEATED_END = "repeated end"  # a run ended well twice, without having lost a worker


@dataclass(frozen=True, slots=True)
class Finding:
    fault: Fault
    run: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Life:
    """Lifetime of an attempt in the evidence."""

    job: str
    attempt: int
    first: float
    last: float
    starts: int
    has_ended: bool


def check(
    marks: Iterable[Mark],
    required: Collection[str],
    optional: Collection[str] = (),
    lost: Collection[str] = (),
) -> list[Finding]:
    """Find everything wrong with the evidence.

    `required` runs must end well, `optional` ones may. Those that `lost` a worker may do so more
    than once: it can vanish between the end of an attempt and its report.
    """
    lives = _lives(marks)
    findings = []
    for run, attempts in lives.items():
        findings += [*_judge_starts(run, attempts), *_judge_order(run, attempts)]
        if run not in lost:
            findings += _judge_ends(run, attempts)
    done = {run for run, attempts in lives.items() if any(life.has_ended for life in attempts)}
    findings += [Finding(Fault.MISSING, run) for run in sorted(set(required) - done)]
    known = {*required, *optional}
    return findings + [Finding(Fault.EXTRA, run) for run in sorted(lives.keys() - known)]


def most_at_once(marks: Iterable[Mark]) -> int:
    """Return the most attempts that ran at the same time; each surely ran between its marks."""
    return _most(marks, lambda life: 1)


def most_in_use(marks: Iterable[Mark], sizes: Mapping[str, int]) -> int:
    """Return the most that attempts used at the same time, each as much as its job needs.

    Jobs without a size need nothing.
    """
    return _most(marks, lambda life: sizes.get(life.job, 0))


def _most(marks: Iterable[Mark], size_of: Callable[[_Life], int]) -> int:
    changes: list[tuple[float, int]] = []
    for attempts in _lives(marks).values():
        for life in attempts:
            size = size_of(life)
            # An end and a start within one tick of the jobs' clock may have been in that order.
            changes += [(life.first + CLOCK_TICK, size), (life.last, -size)]
    return max(accumulate((change for _, change in sorted(changes)), initial=0))


def _lives(marks: Iterable[Mark]) -> Mapping[str, list[_Life]]:
    by_attempt: dict[tuple[str, int], list[Mark]] = {}
    for mark in marks:
        by_attempt.setdefault((mark.run, mark.attempt), []).append(mark)
    lives: dict[str, list[_Life]] = {}
    for (run, attempt), own in by_attempt.items():
        lives.setdefault(run, []).append(_life(attempt, own))
    return lives


def _life(attempt: int, marks: list[Mark]) -> _Life:
    times = [mark.at for mark in marks]
    events = Counter(mark.event for mark in marks)
    return _Life(
        job=marks[0].job,
        attempt=attempt,
        first=min(times),
        last=max(times),
        starts=events[Event.START],
        has_ended=events[Event.END] > 0,
    )


def _judge_starts(run: str, attempts: list[_Life]) -> Iterable[Finding]:
    for life in attempts:
        if life.starts > 1:
            detail = f"attempt {life.attempt} began {life.starts} times"
            yield Finding(Fault.REPEATED_ATTEMPT, run, detail)


def _judge_ends(run: str, attempts: list[_Life]) -> Iterable[Finding]:
    ended = [life.attempt for life in attempts if life.has_ended]
    if len(ended) > 1:
        yield Finding(Fault.REPEATED_END, run, f"attempts {ended}")


def _judge_order(run: str, attempts: list[_Life]) -> Iterable[Finding]:
    for one, other in pairwise(sorted(attempts, key=lambda life: life.attempt)):
        detail = f"attempts {one.attempt} and {other.attempt}"
        if other.first < one.first:
            yield Finding(Fault.STALE_ATTEMPT, run, detail)
        elif other.first < one.last:
            yield Finding(Fault.OVERLAP, run, detail)
