"""What follows from the end of attempts: charges, durations, tallies, events, released runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from rota.adapters.store.script import Many, Script, query
from rota.adapters.store.scripts.effects import Effects, count_ends, record
from rota.adapters.store.scripts.queueing import pool_of
from rota.adapters.store.scripts.releasing import release_jobs
from rota.domain.lateness import bound_of
from rota.domain.order import cost_of
from rota.domain.states import RunState, is_final

_MEMORY = 0.2  # weight of the newest duration in a job's moving average


class Ended(NamedTuple):
    """An attempt that has ended. A tuple, as thousands are made in one transaction."""

    run: str
    attempt: int
    job_id: str
    job: str
    chain: str
    capacity: float  # fraction of the pool it was charged for
    expected: float  # seconds
    claimed_at: int
    started_at: int | None
    ended_at: int
    state: str  # of the run now
    cause: str
    delay: int | None  # microseconds from the release to the first start; None: never started

    @property
    def seconds(self) -> float:
        return (self.ended_at - (self.started_at or self.claimed_at)) / 1e6


def settle(now: int, ends: Sequence[Ended], effects: Effects, *, actor: str) -> Script[None]:
    """Correct what ended attempts were charged, learn from them, and wake who waited for them."""
    if not ends:
        return
    yield from _correct_charges(ends)
    yield from _learn_durations(ends)
    yield from _count_delays(ends)
    groups: dict[tuple[str, str], list[Ended]] = defaultdict(list)
    for end in ends:
        groups[end.state, end.cause].append(end)
    for (state, cause), group in groups.items():
        yield from _tell(now, RunState(state), cause, group, actor)
    jobs = {end.job_id for end in ends}
    waiting = yield query("any_waits", ids=jobs)
    effects.times |= bool(waiting) or any(state == RunState.SCHEDULED for state, _ in groups)
    yield from release_jobs(now, jobs, effects)


def _correct_charges(ends: Sequence[Ended]) -> Script[None]:
    """What was charged was expected; the truth acts on what still waits."""
    corrections: dict[str, float] = defaultdict(float)
    for end in ends:
        charged = cost_of(end.expected, end.capacity)
        corrections[end.chain] += cost_of(end.seconds, end.capacity) - charged
    yield Many("charge_chain", [(cost, chain) for chain, cost in corrections.items()])


def _learn_durations(ends: Sequence[Ended]) -> Script[None]:
    durations: dict[str, list[float]] = defaultdict(list)
    for end in ends:
        if end.state == RunState.COMPLETED:
            durations[end.job_id].append(end.seconds)
    if not durations:
        return
    rows = yield query("expected_durations", ids=durations)
    updates = []
    for row in rows:
        seconds, old = durations[row["id"]], row["expected_seconds"]
        mean = sum(seconds) / len(seconds)
        keep = (1 - _MEMORY) ** len(seconds)
        updates.append((mean if old is None else old * keep + mean * (1 - keep), row["id"]))
    yield Many("set_expected_seconds", updates)


def _count_delays(ends: Sequence[Ended]) -> Script[None]:
    """Each run counts once, at its end."""
    buckets: dict[tuple[str, float], list[float]] = defaultdict(list)
    for end in ends:
        if end.delay is not None and is_final(RunState(end.state)):
            delay = end.delay / 1e6
            buckets[pool_of(end.chain), bound_of(delay)].append(delay)
    rows = [(*bucket, len(delays), sum(delays)) for bucket, delays in buckets.items()]
    if rows:
        yield Many("count_delays", rows)


def _tell(
    now: int, state: RunState, cause: str, group: Sequence[Ended], actor: str
) -> Script[None]:
    if is_final(state):
        yield from count_ends((end.job, state) for end in group)
    yield record(
        "run.finished" if is_final(state) else f"run.{state.lower()}",
        now,
        [end.run for end in group],
        actor=actor,
        state=state,
        cause=cause,
        attempts=[end.attempt for end in group],
    )
