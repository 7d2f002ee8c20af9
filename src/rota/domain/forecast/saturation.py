"""When there is too little of something, and who waits for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from rota.domain.forecast.ahead import JOB_GATE, WORKER_GATE, RunAhead
from rota.domain.gates import AFTER
from rota.domain.shared_keys import KeyKind

NOTICED_SECONDS = 1.0  # shorter waits are nobody's concern
_NAMED = 3  # jobs of each stretch


@dataclass(frozen=True, slots=True)
class Saturation:
    """A stretch in which runs wait for the same thing."""

    what: str  # `worker:POOL` or a key
    begins_at: float
    ends_at: float
    waiting: int  # runs that waited in it
    longest_wait: float
    jobs: Sequence[str]  # whose runs waited, the most frequent first
    unplaced: int = 0  # those that do not start in the time ahead


def saturations(runs: Iterable[RunAhead], until: float) -> list[Saturation]:
    """All such stretches, in order.

    A job that keeps its own runs back is none of them, nor is one that others come after.
    """
    waits: dict[str, list[RunAhead]] = defaultdict(list)
    for run in runs:
        if _is_short(run) and run.wait > NOTICED_SECONDS:
            waits[shortage_of(run)].append(run)
    found = [span for what, each in waits.items() for span in _spans(what, each, until)]
    return sorted(found, key=lambda span: (span.begins_at, span.what))


def shortage_of(run: RunAhead) -> str:
    """What a run waits for, as one text."""
    return f"{WORKER_GATE}:{run.job.pool}" if run.waits_for == WORKER_GATE else run.waits_for


def _is_short(run: RunAhead) -> bool:
    return run.waits_for not in ("", JOB_GATE) and not run.waits_for.startswith(AFTER)


def resource_of(shortage: str) -> str:
    """The pool or declaration of which there is too little: `worker:POOL`, `rate:PROJECT/NAME`.

    "" for inputs that runs exclude one another by, which are as many as there are values.
    """
    if shortage.startswith(f"{KeyKind.EXCLUSIVE}:"):
        return ""
    return "/".join(shortage.split("/")[:2])  # without whom a limit has a bucket for


def _spans(what: str, waiting: Sequence[RunAhead], until: float) -> Iterator[Saturation]:
    """Waits that overlap are one stretch."""
    lot: list[RunAhead] = []
    end = 0.0
    for run in sorted(waiting, key=lambda run: run.ready_at):
        if lot and run.ready_at > end:
            yield _span(what, lot, end, until)
            lot = []
        lot.append(run)
        end = max(end, min(run.start_at, until))
    if lot:
        yield _span(what, lot, end, until)


def _span(what: str, lot: Sequence[RunAhead], end: float, until: float) -> Saturation:
    names = Counter(run.job.name for run in lot).most_common(_NAMED)
    longest = max(min(run.start_at, until) - run.ready_at for run in lot)
    return Saturation(
        what=what,
        begins_at=lot[0].ready_at,
        ends_at=end,
        waiting=len(lot),
        longest_wait=longest,
        jobs=tuple(name for name, _ in names),
        unplaced=sum(run.start_at == inf for run in lot),
    )
